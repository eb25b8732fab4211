package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/callgate/callgate/tools"
)

// Bounds of one search.
const (
	defaultHits    = 20
	maxHits        = 50
	defaultContext = 2
	maxContext     = 5
	maxQueryChars  = 1000
	// MaxSearchedBytes is the largest file that is searched; larger ones are named as skipped.
	MaxSearchedBytes = 4 << 20
	maxSearchTotal   = 64 << 20
	maxSnippetLines  = 24
	maxSnippetLine   = 400 // characters
)

// hit is one place. Lines are the snippet's, so that workspace_read_file with them shows the same.
type hit struct {
	Path      string `json:"path"`
	Score     int    `json:"score"` // 1..100
	StartLine int    `json:"start_line"`
	EndLine   int    `json:"end_line"`
	Snippet   string `json:"snippet"`
	SHA256    string `json:"sha256"`
	Ref       string `json:"ref"`
}

type skipped struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// searchFiles is workspace.search_files {query, path?, limit?, context_lines?}. Case does not count. A place that
// holds the whole query scores 100; one that holds some of its words scores their share of 90.
func searchFiles(ctx context.Context, c *call) (tools.Result, error) {
	c.must("query")
	query := c.short("query", maxQueryChars)
	path := c.text("path", "")
	limit, _ := c.whole("limit", defaultHits, 1, maxHits)
	around, _ := c.whole("context_lines", defaultContext, 0, maxContext)
	if strings.TrimSpace(query) == "" {
		c.fail("query is empty. Write the words to look for.")
	}
	if err := c.done(); err != nil {
		return tools.Result{}, err
	}
	path, err := cleanFolder(path)
	if err != nil {
		return tools.Result{}, err
	}
	files, err := c.within(path)
	if err != nil {
		return tools.Result{}, err
	}

	look := newNeedle(query)
	hits, skips := []hit{}, []skipped{}
	total, scanned := 0, int64(0)
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return tools.Result{}, err
		}
		if f.Size > MaxSearchedBytes {
			skips = append(skips, skipped{f.Path, "too large to search"})
			continue
		}
		if scanned += f.Size; scanned > maxSearchTotal {
			skips = append(skips, skipped{f.Path, "the search has read enough; search a narrower path"})
			continue
		}
		data, err := c.read(ctx, f)
		if err != nil {
			return tools.Result{}, err
		}
		if !utf8.Valid(data) {
			skips = append(skips, skipped{f.Path, "not UTF-8 text"})
			continue
		}
		found := look.in(f, string(data), int(around))
		total += len(found)
		hits = best(append(hits, found...), int(limit))
	}

	var b strings.Builder
	switch {
	case total == 0:
		fmt.Fprintf(&b, "Nothing in %s matches %s.", orWhole(path), show(query))
	case total > len(hits):
		fmt.Fprintf(&b, "%d places match; the best %d:", total, len(hits))
	default:
		fmt.Fprintf(&b, "%s:", plural(total, "place matches", "places match"))
	}
	for _, h := range hits {
		fmt.Fprintf(&b, "\n\n%s (score %d)\n%s", h.Ref, h.Score, h.Snippet)
	}
	for i, s := range skips {
		if i == 5 {
			fmt.Fprintf(&b, "\n\n%d more files were not searched.", len(skips)-i)
			break
		}
		fmt.Fprintf(&b, "\n\nNot searched: %s (%s)", s.Path, s.Why)
	}
	return answer(struct {
		Query   string    `json:"query"`
		Hits    []hit     `json:"hits"`
		Total   int       `json:"total"`
		Files   int       `json:"files"`
		Skipped []skipped `json:"skipped"`
	}{query, hits, total, len(files), skips}, "%s", b.String())
}

// best keeps the limit best hits: by score, then path, then line.
func best(hits []hit, limit int) []hit {
	slices.SortFunc(hits, func(a, b hit) int {
		if a.Score != b.Score {
			return b.Score - a.Score
		}
		if a.Path != b.Path {
			return strings.Compare(a.Path, b.Path)
		}
		return a.StartLine - b.StartLine
	})
	return hits[:min(len(hits), limit)]
}

// needle is a query: as a whole, and its distinct words.
type needle struct {
	whole string
	words []string
}

func newNeedle(query string) needle {
	n := needle{whole: strings.ToLower(strings.TrimSpace(query))}
	for w := range strings.FieldsSeq(n.whole) {
		if !slices.Contains(n.words, w) {
			n.words = append(n.words, w)
		}
	}
	return n
}

// in finds the places in one file: matching lines whose contexts touch are one place.
func (n needle) in(f tools.File, text string, around int) []hit {
	lines := splitLines(text)
	var out []hit
	for i := 0; i < len(lines); i++ {
		if !n.matches(lines[i]) {
			continue
		}
		from, last := max(0, i-around), i
		for j := i + 1; j < len(lines) && j <= last+2*around+1 && j-from < maxSnippetLines-around; j++ {
			if n.matches(lines[j]) {
				last = j
			}
		}
		to := min(len(lines), last+around+1)
		out = append(out, n.hit(f, lines, from, to, i, last))
		i = last
	}
	return out
}

func (n needle) matches(line string) bool {
	line = strings.ToLower(line)
	for _, w := range n.words {
		if strings.Contains(line, w) {
			return true
		}
	}
	return strings.Contains(line, n.whole)
}

// hit scores lines first..last and shows lines from..to (0-based, to exclusive).
func (n needle) hit(f tools.File, lines []string, from, to, first, last int) hit {
	score, held := 0, 0
	body := strings.ToLower(strings.Join(lines[first:last+1], "\n"))
	for _, w := range n.words {
		if strings.Contains(body, w) {
			held++
		}
	}
	score = max(1, 90*held/len(n.words))
	if strings.Contains(body, n.whole) {
		score = 100
	}
	shown := make([]string, 0, to-from)
	for _, l := range lines[from:to] {
		shown = append(shown, clip(l, maxSnippetLine))
	}
	return hit{
		Path: f.Path, Score: score, StartLine: from + 1, EndLine: to,
		Snippet: strings.Join(shown, "\n"), SHA256: hexOf(f.Digest),
		Ref: fmt.Sprintf("workspace:%s#L%d-L%d", f.Path, from+1, to),
	}
}

// splitLines cuts a text at its line ends, which are dropped; a line end at the very end opens no further line.
func splitLines(text string) []string {
	lines := strings.Split(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(l, "\r")
	}
	return lines
}

// clip cuts a text to at most most characters and says so.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for i := range s {
		if most == 0 {
			return s[:i] + " ..."
		}
		most--
	}
	return s
}
