package specs

// PolicyTest is a suite of expected decisions, run by `callgate test`.
type PolicyTest struct {
	Meta
	Users   map[string]TestUser
	Tenants map[string]TestTenant // labels to try; the default is the bundle's Tenant
	Cases   []TestCase
}

// TestUser is a person of the suite.
type TestUser struct {
	Roles  []Role
	Labels map[string]string
}

// TestTenant is a tenant of the suite.
type TestTenant struct {
	Labels map[string]string
}

// TestCase is one call and what should be decided about it.
type TestCase struct {
	Name   string
	Tool   Text
	As     TestSubject
	Args   Schema           // JSON of the arguments; absent in a list-phase case
	Phase  string           // list, call (default), dispatch
	Budget map[string]int64 // used so far by dimension: maxCalls, maxOutputTokens, maxCost
	Call   TestCall
	Now    string // RFC 3339; default 2026-01-01T00:00:00Z
	Expect TestExpect
	Pos    Pos
}

// TestSubject says who makes the call and where.
type TestSubject struct {
	User, Profile, Node, Tenant string
	Labels                      map[string]string // the run's
	Round, Depth                int64
}

// TestCall gives the call's place in the run.
type TestCall struct {
	Sequence, Repeat int64
}

// TestExpect holds the fields that must be so; absent ones are not looked at.
type TestExpect struct {
	Visible, Callable, ApprovalRequired *bool
	Rule                                Text
	Reason, Message                     *string
	Budget                              map[string]int64
	Pos                                 Pos
}
