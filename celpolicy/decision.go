package celpolicy

import (
	"encoding/json"
	"time"

	"github.com/callgate/callgate/specs"
)

// Decision is the answer about one tool in one phase. Equal policy digest and input give equal bytes.
type Decision struct {
	Tool  specs.ToolName `json:"tool"`
	Phase Phase          `json:"phase"`
	// Visible says that the model may see the tool; VisibleToUser that people may.
	Visible       bool `json:"visible"`
	VisibleToUser bool `json:"visibleToUser"`
	// Callable by the model implies Visible. An ask does not make it false.
	Callable         bool `json:"callable"`
	ApprovalRequired bool `json:"approvalRequired"`
	// Code is empty when callable, else why not: see the Code constants.
	Code string `json:"code,omitempty"`
	// Rule and Layer name the voice that decided: a rule ("writers/no-secrets"), or a part of a document
	// ("writer/tools.deny", "writer/tools.allow", "shell.run/permission", "shell.run/visibility").
	Rule  specs.RuleID    `json:"rule,omitempty"`
	Layer specs.LayerName `json:"layer,omitempty"`
	// DeniedBy names every voice that denies or hides, the deciding one first. Silence (nobody granted it) is not a deny.
	DeniedBy []specs.RuleID `json:"deniedBy,omitempty"`
	// Reason is for people and the journal; Message is the only text about the policy that a model may read.
	Reason  string       `json:"reason"`
	Message string       `json:"message,omitempty"`
	OnDeny  specs.OnDeny `json:"onDeny,omitempty"`
	// Asks are the approvals that must all be given, sorted by layer rank, then rule.
	Asks []Ask `json:"asks,omitempty"`
	// Grants are the ids of remembered grants that cleared an ask.
	Grants []string `json:"grants,omitempty"`
	Budget Limits   `json:"budget"`
	// Charges are the counters that this call draws on, sorted; all must be able to pay.
	Charges []Charge `json:"charges,omitempty"`
	// Verdicts is what each layer said, by layer; a layer that said nothing is "none".
	Verdicts     map[specs.LayerName]Verdict `json:"verdicts"`
	PolicyDigest specs.Digest                `json:"policyDigest"`
	// Unknown says, in PhaseList, that some condition on arguments could still change the answer.
	Unknown bool    `json:"unknown,omitempty"`
	Trace   []Voice `json:"trace,omitempty"`
}

// Codes of a decision that is not callable. Unknown, hidden and denied tools give the model the same text.
const (
	CodeUnknownTool     = "tool.unknown"
	CodeNotAllowed      = "policy.not_allowed" // nobody granted it
	CodeCeiling         = "policy.ceiling"     // a platform or source ceiling leaves it out
	CodeDenied          = "policy.denied"      // a rule, a list or the spec denies
	CodeHidden          = "policy.hidden"      // for people, or for nobody
	CodePolicyError     = "policy_error"       // a deny that could not be decided
	CodeBudgetExhausted = "budget.exhausted"   // a limit of 0, or used up
	CodeEnvelope        = "policy.envelope"    // outside what the caller may pass on
	CodeLayerUnreadable = "policy.layer_unreadable"
)

// Verdict is a layer's voice in one word.
type Verdict string

// Verdicts.
const (
	VerdictNone  Verdict = "none"
	VerdictAllow Verdict = "allow"
	VerdictAsk   Verdict = "ask"
	VerdictDeny  Verdict = "deny"
	VerdictError Verdict = "error" // something could not be decided and went to the strict side
)

// Ask is one demand for approval that nobody waived.
type Ask struct {
	Rule      specs.RuleID    `json:"rule"`
	Layer     specs.LayerName `json:"layer"`
	Reason    string          `json:"reason,omitempty"`
	Approval  specs.Approval  `json:"approval"`
	Grantable bool            `json:"grantable"`
}

// Limits is the effective budget: the tightest value of every layer per dimension, defaults where all are silent.
type Limits struct {
	MaxCalls        Limit         `json:"maxCalls"`
	MaxOutputTokens Limit         `json:"maxOutputTokens"`
	MaxCost         Limit         `json:"maxCost"`
	Timeout         time.Duration `json:"-"` // of one attempt; in JSON "timeout" is text, "10s"
	TimeoutFrom     specs.RuleID  `json:"timeoutFrom,omitempty"`
}

type limitFields Limits // without the methods

// MarshalJSON writes the timeout as an author does.
func (l Limits) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		limitFields
		Timeout string `json:"timeout"`
	}{limitFields(l), l.Timeout.String()})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *Limits) UnmarshalJSON(raw []byte) error {
	in := struct {
		*limitFields
		Timeout string `json:"timeout"`
	}{limitFields: (*limitFields)(l)}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	var err error
	l.Timeout, err = time.ParseDuration(in.Timeout)
	return err
}

// Limit is one dimension's tightest value and who set it; From is "default" when no layer spoke.
type Limit struct {
	Value int64        `json:"value"`
	Per   specs.Per    `json:"per"`
	From  specs.RuleID `json:"from"`
}

// Dimension is what a budget counts.
type Dimension string

// Dimensions.
const (
	DimCalls        Dimension = "maxCalls"
	DimOutputTokens Dimension = "maxOutputTokens"
	DimCost         Dimension = "maxCost"
)

// Charge is one counter a call draws on: the budget of a rule (shared by all tools it selects), of a
// tool's spec (per tool), or of the run itself.
type Charge struct {
	Owner     string    `json:"owner"` // rule id, tool name + "/budget", or "run"
	Per       specs.Per `json:"per"`
	Dimension Dimension `json:"dimension"`
	Limit     int64     `json:"limit"`
}

// Voice is one line of a trace: what one rule or list said.
type Voice struct {
	Layer   specs.LayerName `json:"layer"`
	Rule    specs.RuleID    `json:"rule"`
	File    string          `json:"file,omitempty"`
	Line    int             `json:"line,omitempty"`
	Effect  specs.Effect    `json:"effect"`
	Outcome Outcome         `json:"outcome"`
	Won     bool            `json:"won,omitempty"` // this voice decided
	Reason  string          `json:"reason,omitempty"`
	Error   string          `json:"error,omitempty"` // with the expression's own place
	Note    string          `json:"note,omitempty"`  // "waived by ...", "cleared by grant ...", "dyn: args.x is not typed because ..."
}

// Outcome is how a rule's condition came out.
type Outcome string

// Outcomes.
const (
	Matched   Outcome = "matched"
	Unmatched Outcome = "unmatched"
	Unknown   Outcome = "unknown" // depends on arguments that are not known in this phase
	Errored   Outcome = "error"   // went to the strict side of the rule's effect
	Waived    Outcome = "waived"  // an ask that a higher layer or a grant cleared
)
