package persistencetest

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/callgate/callgate/machine"
	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// HappyCall is one tool call as the dispatcher writes it when nobody has to be asked: a commit before the side
// effect, with decision, arguments and reservation, and one after it, with the result and the settlement.
func HappyCall(tenant specs.TenantID, run specs.RunID, n int) (before, after persistence.Change) {
	id := specs.CallID(fmt.Sprintf("c%d", n))
	args := persistence.BlobOf("application/json", fmt.Appendf(nil, `{"path":"output/main.md","n":%d}`, n))
	result := persistence.BlobOf("application/json", fmt.Appendf(nil, `{"call_id":"%s","content":[{"type":"text","text":"done"}]}`, id))
	key := persistence.CounterKey("run/" + string(run) + "/maxCalls")
	call := &persistence.Call{ID: id, ProviderID: "toolu_" + string(id), Tool: "workspace.read_file", Asked: "workspace_read_file", Args: args.Digest, Sequence: int64(n)}
	table := machine.Call()
	line := func(from machine.State, ev machine.Event, payload string) persistence.Entry {
		step, err := table.Fire(from, ev)
		if err != nil {
			panic(err) // the shipped table has these edges, or its own tests fail
		}
		return persistence.Entry{Payload: []byte(payload), Move: &persistence.Move{Step: step, Record: call}}
	}
	before = persistence.Change{Tenant: tenant, Run: run, Key: "start/" + string(id),
		Lines: []persistence.Entry{
			{Payload: []byte(`{"tool":"workspace.read_file","args":"` + string(args.Digest) + `"}`), Move: &persistence.Move{Step: table.Birth(), Record: call}},
			line(machine.CallRequested, machine.CallAllow, `{"rule":"baseline/reads"}`),
			line(machine.CallReady, machine.CallStart, `{"attempt":1}`),
		},
		Decisions: []persistence.DecisionRecord{{Call: id, Phase: "call", Attempt: 1, PolicyDigest: args.Digest, Input: []byte(`{"tool":"workspace.read_file"}`), Output: []byte(`{"callable":true}`)}},
		Reserve:   []persistence.Reservation{{Call: id, Counter: key, Limit: 1 << 40, Amount: 1, LeaseUntil: time.Now().Add(time.Minute)}},
		Blobs:     []persistence.Blob{args}}
	done := *call
	done.Result = result.Digest
	call2 := &done
	step, err := table.Fire(machine.CallStarted, machine.CallComplete)
	if err != nil {
		panic(err) // as above
	}
	after = persistence.Change{Tenant: tenant, Run: run, Key: "end/" + string(id),
		Lines:  []persistence.Entry{{Payload: []byte(`{"ms":3}`), Move: &persistence.Move{Step: step, Record: call2}}},
		Settle: []persistence.Settlement{{Call: id, Counter: key, Spent: 1}},
		Blobs:  []persistence.Blob{result}}
	return before, after
}

// Bench measures happy calls, by one caller and by many with a run each.
func Bench(b *testing.B, place Make) {
	procs := runtime.GOMAXPROCS(0)
	for _, callers := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := place(b).Open(b, persistence.Options{})
			var worker, calls atomic.Int64
			if callers == 1 {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // RunParallel starts that many at least
			}
			b.SetParallelism(max(1, callers/procs))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				run := specs.RunID(fmt.Sprintf("r%d", worker.Add(1)))
				_, err := s.Apply(b.Context(), persistence.Change{Tenant: tenant, Run: run, Key: "create",
					Lines: []persistence.Entry{{Move: &persistence.Move{Step: machine.Run().Birth(), Record: &persistence.Run{ID: run}}}}})
				if err != nil {
					b.Error(err)
					return
				}
				for n := 0; pb.Next(); n++ {
					before, after := HappyCall(tenant, run, n)
					for _, c := range []persistence.Change{before, after} {
						if _, err := s.Apply(b.Context(), c); err != nil {
							b.Error(err)
							return
						}
					}
					calls.Add(1)
				}
			})
			b.ReportMetric(float64(calls.Load())/b.Elapsed().Seconds(), "calls/s")
		})
	}
}
