package persistencetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// reports says that Verify finds exactly these kinds in a run, and gives its report.
func reports(t *testing.T, s persistence.Store, run specs.RunID, want ...persistence.FindingKind) persistence.Report {
	t.Helper()
	report, err := persistence.Verify(t.Context(), s, tenant, run)
	if err != nil {
		t.Fatal(err)
	}
	var got []persistence.FindingKind
	for _, f := range report.Findings {
		got = append(got, f.Kind)
	}
	slices.Sort(got)
	slices.Sort(want)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("verify found %q, want %q: %v", got, want, report.Findings)
	}
	return report
}

// tamperingIsReported plays a tamperer who has the database to himself, and who knows how lines are hashed.
func tamperingIsReported(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	const n = 10
	// A run for every trick, some that have ended, so that the tenant's chain remembers how.
	tricks := []struct {
		name  string
		ended bool
		play  func(run specs.RunID, all []persistence.Line)
		want  []persistence.FindingKind
		seq   int64
		whole bool // seen only when the whole tenant is verified
	}{
		{name: "one byte of a payload", want: []persistence.FindingKind{persistence.FoundEdit}, seq: 4, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE journal SET payload = $1 WHERE run = $2 AND seq = 4`, []byte(`{"n":8}`), string(run)))
		}},
		{name: "who it was", want: []persistence.FindingKind{persistence.FoundEdit}, seq: 4, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE journal SET request = 'mallory' WHERE run = $1 AND seq = 4`, string(run)))
		}},
		{name: "one microsecond", want: []persistence.FindingKind{persistence.FoundEdit}, seq: 4, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE journal SET at = at + 1 WHERE run = $1 AND seq = 4`, string(run)))
		}},
		{name: "a line and its hash", want: []persistence.FindingKind{persistence.FoundEdit}, seq: 4, play: func(run specs.RunID, all []persistence.Line) {
			l := all[3]
			l.Payload = []byte(`{"n":8}`)
			must(t, p.Exec(t, `UPDATE journal SET payload = $1, hash = $2 WHERE run = $3 AND seq = 4`, []byte(l.Payload), string(l.Sum()), string(run)))
		}},
		{name: "the last line and its hash", want: []persistence.FindingKind{persistence.FoundEdit}, seq: n, play: func(run specs.RunID, all []persistence.Line) {
			l := all[n-1]
			l.Payload = []byte(`{"n":8}`)
			must(t, p.Exec(t, `UPDATE journal SET payload = $1, hash = $2 WHERE run = $3 AND seq = $4`, []byte(l.Payload), string(l.Sum()), string(run), int64(n)))
		}},
		{name: "one line gone", want: []persistence.FindingKind{persistence.FoundGap}, seq: 5, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `DELETE FROM journal WHERE run = $1 AND seq = 5`, string(run)))
		}},
		{name: "the first line gone", want: []persistence.FindingKind{persistence.FoundGap}, seq: 1, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `DELETE FROM journal WHERE run = $1 AND seq = 1`, string(run)))
		}},
		{name: "one line gone and the rest moved up", want: []persistence.FindingKind{persistence.FoundEdit}, play: func(run specs.RunID, all []persistence.Line) {
			must(t, p.Exec(t, `DELETE FROM journal WHERE run = $1 AND seq = 5`, string(run)))
			for seq := int64(6); seq <= n; seq++ {
				must(t, p.Exec(t, `UPDATE journal SET seq = $1 WHERE run = $2 AND seq = $3`, seq-1, string(run), seq))
			}
			must(t, p.Exec(t, `UPDATE heads SET seq = $1 WHERE run = $2`, int64(n-1), string(run)))
		}},
		{name: "the end gone", want: []persistence.FindingKind{persistence.FoundTruncation}, seq: 8, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `DELETE FROM journal WHERE run = $1 AND seq >= 8`, string(run)))
		}},
		{name: "the end gone and the head moved", ended: true, want: []persistence.FindingKind{persistence.FoundTruncation}, seq: 8, play: func(run specs.RunID, all []persistence.Line) {
			must(t, p.Exec(t, `DELETE FROM journal WHERE run = $1 AND seq >= 8`, string(run)))
			must(t, p.Exec(t, `UPDATE heads SET seq = 7, hash = $1 WHERE run = $2`, string(all[6].Hash), string(run)))
		}},
		{name: "everything gone", want: []persistence.FindingKind{persistence.FoundTruncation}, seq: 1, play: func(run specs.RunID, _ []persistence.Line) {
			for _, table := range []string{"journal", "heads", "subjects"} {
				must(t, p.Exec(t, `DELETE FROM `+table+` WHERE run = $1`, string(run)))
			}
		}},
		{name: "the head gone", want: []persistence.FindingKind{persistence.FoundTruncation}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `DELETE FROM heads WHERE run = $1`, string(run)))
		}},
		{name: "a second child of line 3", want: []persistence.FindingKind{persistence.FoundFork}, seq: n + 1, play: func(run specs.RunID, all []persistence.Line) {
			l := persistence.Line{Tenant: tenant, Run: run, ID: "x", Level: persistence.LevelInfo, Kind: persistence.KindNote, Payload: []byte(`{}`)}
			l.Seq, l.Prev = n+1, all[2].Hash
			insertLine(t, p, l, l.Sum())
			must(t, p.Exec(t, `UPDATE heads SET seq = $1, hash = $2 WHERE run = $3`, int64(n+1), string(l.Sum()), string(run)))
		}},
		{name: "a line that the store did not write", want: []persistence.FindingKind{persistence.FoundFork}, seq: n + 1, play: func(run specs.RunID, all []persistence.Line) {
			l := persistence.Line{Tenant: tenant, Run: run, ID: "x", Level: persistence.LevelInfo, Kind: persistence.KindNote, Payload: []byte(`{}`)}
			l.Seq, l.Prev = n+1, all[n-1].Hash
			insertLine(t, p, l, l.Sum())
		}},
		{name: "the chain rewritten from line 4 on, head and all", ended: true, want: []persistence.FindingKind{persistence.FoundAnchor}, play: func(run specs.RunID, all []persistence.Line) {
			head := persistence.Head{Seq: 3, Hash: all[2].Hash}
			for _, l := range all[3:] {
				if l.Seq == 4 {
					l.Payload = []byte(`{"n":8}`)
				}
				persistence.Seal(&l, &head)
				must(t, p.Exec(t, `UPDATE journal SET payload = $1, prev = $2, hash = $3 WHERE run = $4 AND seq = $5`, append([]byte{}, l.Payload...), string(l.Prev), string(l.Hash), string(run), l.Seq))
			}
			must(t, p.Exec(t, `UPDATE heads SET hash = $1 WHERE run = $2`, string(head.Hash), string(run)))
		}},
		{name: "a state set by hand", want: []persistence.FindingKind{persistence.FoundState}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE subjects SET state = 'completed' WHERE run = $1 AND machine = 'call'`, string(run)))
		}},
		{name: "a record without a birth", want: []persistence.FindingKind{persistence.FoundOrphan}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `INSERT INTO subjects (tenant, run, machine, id, from_state, event, state, version, deadline, due, ended, created, updated, born, body)
				SELECT tenant, run, machine, 'ghost', from_state, event, state, version, deadline, due, ended, created, updated, born, $2
				FROM subjects WHERE run = $1 AND machine = 'call'`, string(run), []byte(`{"id":"ghost"}`)))
		}},
		{name: "a record in another's place", want: []persistence.FindingKind{persistence.FoundState}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE subjects SET body = $2 WHERE run = $1 AND machine = 'call'`, string(run), []byte(`{"id":"other"}`)))
		}},
		{name: "what a record says", want: []persistence.FindingKind{persistence.FoundState}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE subjects SET body = $2 WHERE run = $1 AND machine = 'call'`, string(run), []byte(`{"id":"c1","asked":"another.tool"}`)))
		}},
		{name: "how long a record may wait", want: []persistence.FindingKind{persistence.FoundState}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE subjects SET deadline = deadline + 1 WHERE run = $1 AND machine = 'call'`, string(run)))
		}},
		{name: "how often a record moved", want: []persistence.FindingKind{persistence.FoundState}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE subjects SET version = version + 1 WHERE run = $1 AND machine = 'call'`, string(run)))
		}},
		{name: "what was decided", want: []persistence.FindingKind{persistence.FoundState}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE decisions SET output = $2 WHERE run = $1`, string(run), []byte(`{"callable":false}`)))
		}},
		{name: "a decision taken away", want: []persistence.FindingKind{persistence.FoundOrphan}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `DELETE FROM decisions WHERE run = $1`, string(run)))
		}},
		{name: "a decision put in", want: []persistence.FindingKind{persistence.FoundOrphan}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `INSERT INTO decisions (tenant, run, call, phase, attempt, seq, policy_digest, input, output, replayable)
				SELECT tenant, run, call, 'dispatch', 7, seq, policy_digest, input, output, replayable FROM decisions WHERE run = $1`, string(run)))
		}},
		{name: "a file in another's place", want: []persistence.FindingKind{persistence.FoundState}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE tree_files SET path = 'output/b.md' WHERE tree = $1 AND path = 'output/a.md'`, "run/"+string(run)))
		}},
		{name: "a file that comes back", want: []persistence.FindingKind{persistence.FoundState}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE tree_files SET until = 0 WHERE tree = $1 AND path = 'output/gone.md'`, "run/"+string(run)))
		}},
		{name: "a version that is gone", want: []persistence.FindingKind{persistence.FoundState}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `DELETE FROM checkpoints WHERE tree = $1 AND version = 2`, "run/"+string(run)))
		}},
		{name: "a name for other content", want: []persistence.FindingKind{persistence.FoundState}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE artifacts SET digest = $2 WHERE run = $1`, string(run), string(specs.DigestOf([]byte("b")))))
		}},
		{name: "a name that is gone", want: []persistence.FindingKind{persistence.FoundArtifact}, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `DELETE FROM artifacts WHERE run = $1`, string(run)))
		}},
		{name: "a chat's memory", want: []persistence.FindingKind{persistence.FoundState}, whole: true, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE tree_files SET digest = $2 WHERE tree = $1`, "chat/c@"+string(run), string(specs.DigestOf([]byte("b")))))
		}},
		{name: "a yes that nobody gave", want: []persistence.FindingKind{persistence.FoundOrphan}, whole: true, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `INSERT INTO grants (tenant, id, run, created, expires, revoked, body) VALUES ($1, $2, $3, 1, 0, 0, $4)`,
				string(tenant), "forged", string(run), []byte(`{"ID":"forged","Tool":"a.b","Run":"`+string(run)+`"}`)))
		}},
		{name: "a yes for more", want: []persistence.FindingKind{persistence.FoundState}, whole: true, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE grants SET body = $2 WHERE id = $1`, "given-"+string(run), []byte(`{"ID":"given-`+string(run)+`","Tool":"other","Run":"`+string(run)+`"}`)))
		}},
		{name: "a yes that was taken back", want: []persistence.FindingKind{persistence.FoundState}, whole: true, play: func(run specs.RunID, _ []persistence.Line) {
			must(t, p.Exec(t, `UPDATE grants SET revoked = 0 WHERE id = $1`, "revoked-"+string(run)))
		}},
		{name: "an edge that is not in the table", want: []persistence.FindingKind{persistence.FoundFork, persistence.FoundIllegal}, play: func(run specs.RunID, all []persistence.Line) {
			l := persistence.Line{Tenant: tenant, Run: run, ID: "x", Level: persistence.LevelInfo, Kind: "tool_call_completed",
				Machine: "call", Subject: "c1", From: "requested", Event: "complete", To: "completed"}
			l.Seq, l.Prev = n+1, all[n-1].Hash
			insertLine(t, p, l, l.Sum())
		}},
	}
	written := map[string][]persistence.Line{}
	for i, trick := range tricks {
		run := specs.RunID(fmt.Sprintf("r%d", i))
		a := begin(t, s, run)
		call := a.born("c1")
		call.Decisions = []persistence.DecisionRecord{{Call: "c1", Phase: "call", Attempt: 1, PolicyDigest: "sha256:1", Input: []byte(`{}`), Output: []byte(`{"callable":true}`), Replayable: true}}
		file, other := persistence.BlobOf("text/plain", []byte("a")), persistence.BlobOf("text/plain", []byte("b"))
		call.Blobs = append(call.Blobs, file, other)
		call.Trees = []persistence.TreeChange{{Tree: persistence.RunTree(run), Edits: []persistence.TreeEdit{
			{Path: "output/gone.md", Digest: other.Digest, Size: 1}, {Path: "output/a.md", Digest: file.Digest, Size: 1}}},
			{Tree: persistence.ChatTree("c@" + string(run)), Edits: []persistence.TreeEdit{{Path: "persist/a.md", Digest: file.Digest, Size: 1}}}}
		call.Artifacts = []persistence.Artifact{{Name: "tool-args/a.json", Digest: file.Digest}}
		for _, id := range []string{"given-", "revoked-"} {
			call.Grants = append(call.Grants, persistence.Grant{ID: id + string(run), Tool: "a.b", Run: run})
		}
		a.must(call)
		for n := range n - 4 {
			c := a.change("note", note(fmt.Sprintf(`{"n":%d}`, n)))
			if n == 0 {
				c.Trees = []persistence.TreeChange{{Tree: persistence.RunTree(run), Base: 1, Edits: []persistence.TreeEdit{{Path: "output/gone.md"}}}}
				c.Revoke = []string{"revoked-" + string(run)}
			}
			a.must(c)
		}
		if trick.ended {
			end := a.move("c1", machine.CallCancel)
			end.Lines = append(end.Lines, a.moveRun(machine.RunFail).Lines...)
			a.must(end)
		} else {
			a.must(a.change("note", note(`{"n":98}`), note(`{"n":99}`)))
		}
		written[trick.name] = lines(t, s, run)
	}
	sound(t, s)
	p.Disarm(t)
	for i, trick := range tricks {
		t.Run(trick.name, func(t *testing.T) {
			run := specs.RunID(fmt.Sprintf("r%d", i))
			trick.play(run, written[trick.name])
			if trick.whole {
				reports(t, s, run)
				return // found below
			}
			report := reports(t, s, run, trick.want...)
			if trick.seq != 0 && (len(report.Findings) == 0 || report.Findings[0].Seq != trick.seq) {
				t.Errorf("the first finding is %v, want line %d", report.Findings, trick.seq)
			}
		})
	}
	// And of all runs at once, the tenant's own chain included.
	report, err := persistence.VerifyAll(t.Context(), s, tenant)
	if err != nil {
		t.Fatal(err)
	}
	for i, trick := range tricks {
		run := specs.RunID(fmt.Sprintf("r%d", i))
		if !slices.ContainsFunc(report.Findings, func(f persistence.Finding) bool {
			return f.Run == run || trick.whole && strings.Contains(f.Text, "chat/c@"+string(run)+" ")
		}) {
			t.Errorf("verifying everything misses %s (%s)", run, tricks[i].name)
		}
	}
	must(t, p.Exec(t, `DELETE FROM journal WHERE run = '' AND seq = 2`))
	reports(t, s, "", persistence.FoundGap)
}

// verifyWhileWriting: a run at work is no contradiction.
func verifyWhileWriting(t *testing.T, place Make) {
	p := place(t)
	s, reader := p.Open(t, persistence.Options{}), p.Open(t, persistence.Options{})
	begin(t, s, "r0")
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			before, after := HappyCall(tenant, "r0", i)
			changes := []persistence.Change{before, after}
			if i%8 == 0 {
				changes = append(changes, (&author{t: t, store: s, run: specs.RunID(fmt.Sprint("r", i+1))}).birth())
			}
			for _, c := range changes {
				if _, err := s.Apply(context.Background(), c); err != nil {
					t.Errorf("apply: %v", err)
					return
				}
			}
		}
	})
	for range 2 {
		report, err := persistence.VerifyAll(t.Context(), reader, tenant)
		if err != nil || !report.OK() {
			t.Errorf("while it is written: %v, %v", report.Findings, err)
		}
	}
	close(stop)
	writer.Wait()
	sound(t, reader)
}

// caseD11: a line written twice is called a fork, not a deletion.
func caseD11(t *testing.T, place Make) {
	p := place(t)
	s := p.Open(t, persistence.Options{})
	a := begin(t, s, "r")
	for range 4 {
		a.must(a.change("note", note(`{}`)))
	}
	p.Disarm(t)
	l := lines(t, s, "r")[4]
	l.Seq = 6 // the same parent as line 5
	insertLine(t, p, l, l.Sum())
	must(t, p.Exec(t, `UPDATE heads SET seq = 6, hash = $1 WHERE run = 'r'`, string(l.Sum())))
	report := reports(t, s, "r", persistence.FoundFork)
	if f := report.Findings[0]; f.Seq != 6 {
		t.Errorf("the fork is said to be at %d: %s", f.Seq, f.Text)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// insertLine writes a line past the store.
func insertLine(t testing.TB, p Place, l persistence.Line, hash specs.Digest) {
	t.Helper()
	var kind, subject, from, event, to any
	if l.Machine != "" {
		kind, subject, from, event, to = l.Machine, l.Subject, string(l.From), string(l.Event), string(l.To)
	}
	must(t, p.Exec(t, `INSERT INTO journal (tenant, run, seq, id, at, level, kind, payload, cause, request, invocation, call, related,
			machine, subject, from_state, event, to_state, holds, prev, hash)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`,
		string(l.Tenant), string(l.Run), l.Seq, l.ID, persistence.Micros(l.At), string(l.Level), l.Kind, append([]byte{}, l.Payload...), l.Cause,
		l.Request, string(l.Invocation), string(l.Call), l.Related, kind, subject, from, event, to, string(l.Holds), string(l.Prev), string(hash)))
}
