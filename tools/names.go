package tools

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/callgate/callgate/persistence"
	"github.com/callgate/callgate/specs"
)

// CallKey gives the gate's own key of a call: the turn it was made in, and the provider's id. Providers reuse ids between
// turns and repeat them within one; the key is equal exactly when both are. An id that could trouble a log, a URL or
// a terminal is replaced by its digest; the original stays in Call.ProviderID.
func CallKey(turn int64, providerID string) specs.CallID {
	if plainID(providerID) {
		return specs.CallID(strconv.FormatInt(turn, 10) + "-" + providerID)
	}
	sum := sha256.Sum256([]byte(providerID))
	return specs.CallID(strconv.FormatInt(turn, 10) + "~" + hex.EncodeToString(sum[:]))
}

// plainID says that an id is short and made of letters, digits and _ . : - only.
func plainID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("_.:-", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// hashName is the part of an artifact's name that comes from the provider's id.
func hashName(providerID string) string {
	sum := sha256.Sum256([]byte(providerID))
	return "call_" + hex.EncodeToString(sum[:8])
}

// artifactStem names a call's files within its run. When an earlier turn already holds the name, the turn is added. Siblings
// is every call of the run.
func artifactStem(c *persistence.Call, siblings []persistence.Call) string {
	name := hashName(c.ProviderID)
	for i := range siblings {
		if s := &siblings[i]; s.Turn != c.Turn && s.Sequence < c.Sequence && hashName(s.ProviderID) == name {
			return fmt.Sprintf("%s-%d", name, c.Turn)
		}
	}
	return name
}

// ArgsArtifact and ResultArtifact name the files that a call's arguments and result are kept under in its run.
func ArgsArtifact(c *persistence.Call, siblings []persistence.Call) string {
	return "tool-args/" + artifactStem(c, siblings) + ".json"
}

// ResultArtifact is the name of the file that holds a call's result.
func ResultArtifact(c *persistence.Call, siblings []persistence.Call) string {
	return "tool-results/" + artifactStem(c, siblings) + ".json"
}

// idempotencyKey is the same for every attempt of a call and differs between any two calls of any two tenants.
func idempotencyKey(t specs.TenantID, run specs.RunID, call specs.CallID) string {
	sum := sha256.New()
	for _, part := range []string{string(t), string(run), string(call)} {
		fmt.Fprintf(sum, "%d:%s,", len(part), part)
	}
	return "cg-" + hex.EncodeToString(sum.Sum(nil)[:16])
}

// uniqueKey makes a change's key for a step that the states of the records alone keep from happening twice: two callers who
// try it at once must not be told the same thing, so they must not share a key.
func uniqueKey(what string, subject specs.CallID) string {
	return what + "/" + string(subject) + "/" + rand.Text()
}
