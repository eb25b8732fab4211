package specs

import (
	"cmp"
	"slices"
	"strings"
)

// nearest gives the known word that a misspelt one most likely meant, or "". Two words are near when few
// single-character edits (or swaps of neighbours) part them; the shorter the word, the fewer.
func nearest[W ~string](word string, known []W) W {
	limit := min(3, 1+len(word)/4)
	best, bestAt := W(""), limit+1
	for _, k := range known {
		d := editDistance(word, string(k), limit)
		if plainWord(word) == plainWord(string(k)) { // Deny, built-in
			d = min(d, 1)
		}
		if 2*d > max(2, len(k)) { // most of a short word is another word: hour is not or
			continue
		}
		if d < bestAt || d == bestAt && d <= limit && cmp.Less(k, best) {
			best, bestAt = k, d
		}
	}
	return best
}

// plainWord is what is left of a word when it does not matter how it is set.
func plainWord(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}

// didYouMean is the usual hint, or fallback when no known word is near.
func didYouMean[W ~string](word string, known []W, fallback string) string {
	if n := nearest(word, known); n != "" {
		return `did you mean "` + string(n) + `"?`
	}
	return fallback
}

// editDistance counts edits between two words, giving up with limit+1.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		if slices.Min(row) > limit {
			return limit + 1
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
