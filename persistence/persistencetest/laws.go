package persistencetest

import "testing"

// Law is one thing that every store must keep. Its name begins with the id under which the documents know it.
type Law struct {
	Name  string
	Check func(t *testing.T, place Make)
}

// Laws lists all of them. An adapter has a test of the name for each, so that `go test -run TestJ1` finds it:
//
//	func TestJ1_SeqHasNoGaps(t *testing.T) { persistencetest.Check(t, persistencetest.SQLite) }
func Laws() []Law {
	return []Law{
		{"F1_OnlyEdges", onlyEdges},
		{"F1_RawMovesAreRefused", rawMovesAreRefused},
		{"F1_LawIsOne", lawIsOne},
		{"F4_FreshProcessSeesTheSame", freshProcessSeesTheSame},
		{"F5_FoldIsTheProjection", foldIsTheProjection},
		{"F6_OneOfManyWins", oneOfManyWins},
		{"F10_NothingOutlivesItsRun", nothingOutlivesItsRun},
		{"J1_SeqHasNoGaps", seqHasNoGaps},
		{"J3_AllOrNothing", allOrNothing},
		{"J3_RefusedByTheDatabase", refusedByTheDatabase},
		{"J4_KilledWritersLoseNothing", killedWritersLoseNothing},
		{"J5_LinesCannotBeChanged", linesCannotBeChanged},
		{"J5_TamperingIsReported", tamperingIsReported},
		{"J5_VerifyWhileWriting", verifyWhileWriting},
		{"J8_SameKeySameAnswer", sameKeySameAnswer},
		{"J9_BytesInBytesOut", bytesInBytesOut},
		{"J10_RefsResolve", refsResolve},
		{"B1_CountersAddUp", countersAddUp},
		{"B2_NeverOverTheLimit", neverOverTheLimit},
		{"B3_ReservationsEndOnce", reservationsEndOnce},
		{"B4_RefusedChangesCostNothing", refusedChangesCostNothing},
		{"Case_B05_CorrectionsAreSigned", caseB05},
		{"B6_RecoveryFreesWhatIsLate", recoveryFreesWhatIsLate},
		{"A2_ApprovedOnceSpentOnce", approvedOnceSpentOnce},
		{"A5_NoDecisionAfterTheDeadline", noDecisionAfterTheDeadline},
		{"W5_TreesRememberEveryVersion", treesRememberEveryVersion},
		{"N5_ForeignIsMissing", foreignIsMissing},
		{"Case_D02_H36_StaleHoldersWriteNothing", staleHoldersWriteNothing},
		{"Case_D09_HashOfTheStoredForm", caseD09},
		{"Case_D10_OrderBySeq", caseD10},
		{"Case_D11_DoubleWriteIsAFork", caseD11},
		{"Case_D17_RedactionAtTheWriter", redactionAtTheWriter},
		{"Case_H32_OneResult", caseH32},
		{"Case_H37_FailedWriteLeavesTheChain", caseH37},
		{"Case_H38_NulAndSurrogates", caseH38},
		{"Case_H60_PrefixIsText", caseH60},
		{"Case_A30_ExpiryInOneStep", caseA30},
		{"ChangesThatContradictThemselves", changesThatContradictThemselves},
		{"Leases", leases},
		{"PagesOfTheJournal", pagesOfTheJournal},
		{"Listings", listings},
		{"ReadStates", readStates},
		{"Bundles", bundlesAndActivation},
		{"Grants", grants},
	}
}

// Run checks every law, for an adapter that lives elsewhere.
func Run(t *testing.T, place Make) {
	for _, law := range Laws() {
		t.Run(law.Name, func(t *testing.T) { law.Check(t, place) })
	}
}

// Check checks the law that the running test is named after.
func Check(t *testing.T, place Make) {
	t.Helper()
	t.Parallel()
	for _, law := range Laws() {
		if t.Name() == "Test"+law.Name {
			law.Check(t, place)
			return
		}
	}
	t.Fatalf("there is no law %s", t.Name())
}

// Complete fails for every law that none of the tests is named after. tests are function names.
func Complete(t *testing.T, tests []string) {
	t.Helper()
	have := map[string]bool{}
	for _, name := range tests {
		have[name] = true
	}
	for _, law := range Laws() {
		if !have["Test"+law.Name] {
			t.Errorf("no test is named Test%s", law.Name)
		}
	}
}
