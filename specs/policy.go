package specs

import (
	"encoding/json"
	"time"
)

// Policy is a set of rules that speak for one layer.
type Policy struct {
	Meta
	Layer    LayerName // platform, user, plan, profile or source
	LayerPos Pos
	Match    Match
	Rules    []Rule
}

// Match narrows a policy to some tenants, people, profiles, plan nodes or sources. An absent list
// matches everything; an empty list ([]) matches nothing. Entries are globs.
type Match struct {
	Tenants, Users, Roles, Profiles, Nodes, Sources *[]Text
	Pos                                             Pos
}

// Effect is what a rule does when it matches.
type Effect string

// The five effects.
const (
	EffectAllow   Effect = "allow"
	EffectApprove Effect = "approve"
	EffectWaive   Effect = "waive"
	EffectDeny    Effect = "deny"
	EffectHide    Effect = "hide"
)

// OnDeny says what a denial does to the run.
type OnDeny string

// A denial is a typed result by default.
const (
	OnDenyResult  OnDeny = "result"
	OnDenyFailRun OnDeny = "fail_run"
)

// Rule is one rule of a policy.
type Rule struct {
	Name      string
	Tools     []Text // globs over canonical names; `mcp:github.*` narrows by source kind first
	When      Text   // CEL, bool; absent means always
	Effect    Effect
	EffectPos Pos
	Reason    Text // plain text, or a CEL string (see docs/authoring.md)
	Message   Text // what the model may read; plain text
	Approval  *Approval
	Budget    Budget
	OnDeny    OnDeny
	Pos       Pos
}

// ID names the rule of a policy for traces, tests and people.
func (p *Policy) ID(r *Rule) RuleID { return RuleID(p.Name + "/" + r.Name) }

// Approval says who must agree and for how long the question stands.
type Approval struct {
	Approvers    Approvers     `json:"approvers"`
	Quorum       int           `json:"quorum"`                 // default 1; 0 is a load error
	NotRequester bool          `json:"notRequester,omitempty"` // separation of duties: whoever started the run cannot approve
	TTL          time.Duration `json:"-"`                      // default 15m; in JSON "ttl" is text, "15m0s"
	OnExpire     OnExpire      `json:"onExpire"`               // default reject
	Grantable    *bool         `json:"grantable,omitempty"`    // may a remembered grant answer it? default true, false for destructive tools and rollback
	Pos          Pos           `json:"-"`
}

type approvalFields Approval // without the methods

// MarshalJSON writes durations as an author does.
func (a Approval) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		approvalFields
		TTL string `json:"ttl"`
	}{approvalFields(a), a.TTL.String()})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Approval) UnmarshalJSON(raw []byte) error {
	in := struct {
		*approvalFields
		TTL string `json:"ttl"`
	}{approvalFields: (*approvalFields)(a)}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	var err error
	a.TTL, err = time.ParseDuration(in.TTL)
	return err
}

// Approvers is a set of people: any of the roles, or named users. Empty on both counts is a load error.
type Approvers struct {
	Roles []Role   `json:"roles,omitempty"`
	Users []UserID `json:"users,omitempty"`
}

// OnExpire says what happens when nobody answers in time.
type OnExpire string

// Reject ends the call with a typed denial; park leaves it waiting until a person or the run's end settles it
// (a parked approval can no longer be approved, only asked again).
const (
	OnExpireReject OnExpire = "reject"
	OnExpirePark   OnExpire = "park"
)
