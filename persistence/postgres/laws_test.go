package postgres_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/callgate/callgate/persistence/persistencetest"
)

func TestMain(m *testing.M) { persistencetest.Main(m) }

// Every law of persistencetest, under its own name.

func TestF1_OnlyEdges(t *testing.T)          { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestF1_RawMovesAreRefused(t *testing.T) { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestF1_LawIsOne(t *testing.T)           { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestF4_FreshProcessSeesTheSame(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestF5_FoldIsTheProjection(t *testing.T) { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestF6_OneOfManyWins(t *testing.T)       { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestF10_NothingOutlivesItsRun(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestJ1_SeqHasNoGaps(t *testing.T)         { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestJ3_AllOrNothing(t *testing.T)         { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestJ3_RefusedByTheDatabase(t *testing.T) { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestJ4_KilledWritersLoseNothing(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestJ5_LinesCannotBeChanged(t *testing.T) { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestJ5_TamperingIsReported(t *testing.T)  { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestJ5_VerifyWhileWriting(t *testing.T)   { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestJ8_SameKeySameAnswer(t *testing.T)    { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestJ9_BytesInBytesOut(t *testing.T)      { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestJ10_RefsResolve(t *testing.T)         { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestB1_CountersAddUp(t *testing.T)        { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestB2_NeverOverTheLimit(t *testing.T)    { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestB3_ReservationsEndOnce(t *testing.T)  { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestB4_RefusedChangesCostNothing(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestB6_RecoveryFreesWhatIsLate(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestCase_B05_CorrectionsAreSigned(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestA2_ApprovedOnceSpentOnce(t *testing.T) { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestA5_NoDecisionAfterTheDeadline(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestW5_TreesRememberEveryVersion(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestN5_ForeignIsMissing(t *testing.T) { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestCase_D02_H36_StaleHoldersWriteNothing(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestCase_D09_HashOfTheStoredForm(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestCase_D10_OrderBySeq(t *testing.T) { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestCase_D11_DoubleWriteIsAFork(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestCase_D17_RedactionAtTheWriter(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestCase_H32_OneResult(t *testing.T) { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestCase_H37_FailedWriteLeavesTheChain(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestCase_H38_NulAndSurrogates(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestCase_H60_PrefixIsText(t *testing.T)    { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestCase_A30_ExpiryInOneStep(t *testing.T) { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestChangesThatContradictThemselves(t *testing.T) {
	persistencetest.Check(t, persistencetest.OnPostgres)
}
func TestLeases(t *testing.T)            { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestPagesOfTheJournal(t *testing.T) { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestListings(t *testing.T)          { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestReadStates(t *testing.T)        { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestBundles(t *testing.T)           { persistencetest.Check(t, persistencetest.OnPostgres) }
func TestGrants(t *testing.T)            { persistencetest.Check(t, persistencetest.OnPostgres) }

func TestEveryLawIsChecked(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "laws_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names = append(names, f.Name.Name)
		}
	}
	persistencetest.Complete(t, names)
}
