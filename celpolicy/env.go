package celpolicy

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

// What an expression may use. Every name is typed: `user.role` or `tool.annotation` is a load error.
//
//	tool     name, source {kind, name, tool, digest, accepted, trust}, permission,
//	         annotations {sideEffect, readOnly, destructive, idempotent, openWorld, cancellable,
//	                      reversible, cost, costUnknown}
//	args     typed from the tool's inputSchema; not known in PhaseList
//	run      id, labels, profile, plan, node, round, nodeRounds, depth, commits, calls, artifacts
//	user     id, roles, labels          (who started the run)
//	tenant   id, labels
//	budget   used, limit, left: each {calls, outputTokens, cost}
//	call     sequence, repeat
//	now      timestamp
//
// Functions: the CEL standard library, strings, lists, sets, math, optionals, ip() and cidr(),
// glob(string, pattern), path.within(string, root), semver(string). None does I/O.
//
// A label that nobody set reads as "" (has() tells it from an empty one), so that
// `tenant.labels.tier == "pro"` needs no guard.
var (
	toolType = newStructType("callgate.tool",
		field{"name", types.StringType}, field{"source", sourceType.cel},
		field{"annotations", annotationsType.cel}, field{"permission", types.StringType})
	sourceType = newStructType("callgate.source",
		field{"kind", types.StringType}, field{"name", types.StringType}, field{"tool", types.StringType},
		field{"digest", types.StringType}, field{"accepted", types.BoolType}, field{"trust", types.StringType})
	annotationsType = newStructType("callgate.annotations",
		field{"sideEffect", types.StringType}, field{"readOnly", types.BoolType}, field{"destructive", types.BoolType},
		field{"idempotent", types.BoolType}, field{"openWorld", types.BoolType}, field{"cancellable", types.BoolType},
		field{"reversible", types.StringType}, field{"cost", types.IntType}, field{"costUnknown", types.BoolType})
	runType = newStructType("callgate.run",
		field{"id", types.StringType}, field{"labels", labelsType}, field{"profile", types.StringType},
		field{"plan", types.StringType}, field{"node", types.StringType}, field{"round", types.IntType},
		field{"nodeRounds", types.IntType}, field{"depth", types.IntType}, field{"commits", types.IntType},
		field{"calls", types.IntType}, field{"artifacts", types.NewListType(types.StringType)})
	userType = newStructType("callgate.user",
		field{"id", types.StringType}, field{"roles", types.NewListType(types.StringType)}, field{"labels", labelsType})
	tenantType  = newStructType("callgate.tenant", field{"id", types.StringType}, field{"labels", labelsType})
	amountsType = newStructType("callgate.amounts",
		field{"calls", types.IntType}, field{"outputTokens", types.IntType}, field{"cost", types.IntType})
	budgetType = newStructType("callgate.budget",
		field{"used", amountsType.cel}, field{"limit", amountsType.cel}, field{"left", amountsType.cel})
	callType = newStructType("callgate.call", field{"sequence", types.IntType}, field{"repeat", types.IntType})

	labelsType = types.NewMapType(types.StringType, types.StringType)
	openArgs   = types.NewMapType(types.StringType, types.DynType)
)

// The names of the variables.
const (
	varTool   = "tool"
	varArgs   = "args"
	varRun    = "run"
	varUser   = "user"
	varTenant = "tenant"
	varBudget = "budget"
	varCall   = "call"
	varNow    = "now"
)

var variables = []string{varTool, varArgs, varRun, varUser, varTenant, varBudget, varCall, varNow}

func fixedTypes() []*structType {
	return []*structType{toolType, sourceType, annotationsType, runType, userType, tenantType, amountsType, budgetType, callType}
}

// Bounds on what an author can write and on what one expression can build.
const (
	maxExpressionRunes = 16 << 10
	maxNesting         = 64
	maxRange           = 10_000
	maxRegexProgram    = 2_000
)

// shared is the environment without `args`, made once: a fresh one costs a fifth of a millisecond. Every
// compile extends it with the argument types of its own tools.
var shared = sync.OnceValues(func() (*cel.Env, error) {
	libraries, err := cel.NewEnv(append(ownFunctions(),
		tickFunction(),
		cel.ParserExpressionSizeLimit(maxExpressionRunes),
		cel.ParserRecursionLimit(maxNesting),
		cel.DefaultUTCTimeZone(true),
		cel.EnableErrorOnBadPresenceTest(true),
		cel.OptionalTypes(),
		ext.Strings(),
		ext.Lists(ext.ListsMaxRangeSize(maxRange)),
		ext.Sets(),
		ext.Math(),
		ext.Network(),
	)...)
	if err != nil {
		return nil, err
	}
	p := &provider{Provider: libraries.CELTypeProvider(), structs: map[string]*structType{}}
	for _, t := range fixedTypes() {
		p.structs[t.name] = t
	}
	return libraries.Extend(
		cel.CustomTypeProvider(p),
		cel.Variable(varTool, toolType.cel),
		cel.Variable(varRun, runType.cel),
		cel.Variable(varUser, userType.cel),
		cel.Variable(varTenant, tenantType.cel),
		cel.Variable(varBudget, budgetType.cel),
		cel.Variable(varCall, callType.cel),
		cel.Variable(varNow, types.TimestampType),
	)
})
