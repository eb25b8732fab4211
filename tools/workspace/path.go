package workspace

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Limits of a path, in bytes.
const (
	MaxPathBytes    = 1024
	MaxSegmentBytes = 255
)

// Roots gives the five folders a workspace can have. A profile only narrows them.
func Roots() []string { return []string{"output", "scratch", "plan", "summaries", "persist"} }

// PathError says what is wrong with a path, in words for the one who wrote it.
type PathError struct {
	Code string // CodeInvalidPath or CodePathIsDirectory
	Path string
	Why  string // a whole sentence
	Hint string // what to write or do instead; may be empty
}

func (e *PathError) Error() string {
	if e.Hint == "" {
		return e.Why
	}
	return e.Why + " " + e.Hint
}

// Clean checks the path of a file. It gives the path back byte for byte or a *PathError; it never repairs, because
// the policy has judged the text as it was written. It does not look whether the file exists or may be seen.
func Clean(path string) (string, error) {
	bad := func(hint, format string, args ...any) (string, error) {
		return "", &PathError{Code: CodeInvalidPath, Path: path, Why: fmt.Sprintf(format, args...), Hint: hint}
	}
	const example = "Write a relative path such as output/main.md."
	if path == "" {
		return bad(example, "The path is empty.")
	}
	if len(path) > MaxPathBytes {
		return bad("Choose a shorter one.", "The path has %d bytes; at most %d are possible.", len(path), MaxPathBytes)
	}
	if !utf8.ValidString(path) || strings.ContainsRune(path, utf8.RuneError) {
		return bad(example, "The path %s is not valid UTF-8.", show(path))
	}
	for _, r := range path {
		switch {
		case r == 0:
			return bad("Leave it out.", "The path %s holds a NUL character.", show(path))
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs):
			return bad("Leave it out.", "The path %s holds the invisible character %U.", show(path), r)
		}
	}
	if strings.Contains(path, `\`) {
		return bad("Write / between folders: "+strings.ReplaceAll(path, `\`, "/")+".", "The path %s holds a backslash.", show(path))
	}
	if path[0] == '/' {
		return bad("Write it without the leading slash; workspace paths start with a root such as output/.", "The path %s is absolute.", show(path))
	}
	if len(path) >= 2 && path[1] == ':' && isLetter(path[0]) {
		return bad(example, "The path %s starts with a drive.", show(path))
	}
	if rest, found := strings.CutPrefix(path, "workspace:"); found {
		rest, _, _ = strings.Cut(rest, "#")
		return bad("Write only the path: "+rest+".", "%s is a reference, not a path.", show(path))
	}
	if !norm.NFC.IsNormalString(path) {
		return bad("Write it in composed form (NFC): "+norm.NFC.String(path)+".", "The path %s is not in Unicode normal form NFC.", show(path))
	}
	body := path
	if strings.HasSuffix(path, "/") {
		body = path[:len(path)-1]
	}
	for seg := range strings.SplitSeq(body, "/") {
		switch {
		case seg == "":
			return bad("Write one / between folders.", "The path %s has an empty part.", show(path))
		case seg == ".":
			return bad("Leave the . out; workspace paths start with a root such as output/.", "The path %s has the part \".\".", show(path))
		case seg == "..":
			return bad("Workspace paths cannot lead upwards; write the whole path from its root, such as output/main.md.", "The path %s has the part \"..\".", show(path))
		case len(seg) > MaxSegmentBytes:
			return bad("Choose a shorter name.", "One name in the path has %d bytes; at most %d are possible.", len(seg), MaxSegmentBytes)
		}
	}
	if body != path {
		return "", &PathError{Code: CodePathIsDirectory, Path: path,
			Why: fmt.Sprintf("%s names a folder.", show(path)), Hint: "Use workspace_list_files to see what is in it, and name a file."}
	}
	return path, nil
}

// cleanFolder checks a path that may name a folder: as Clean, and one slash at the end is allowed and dropped.
// "" stands for the whole workspace.
func cleanFolder(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if trimmed := strings.TrimSuffix(path, "/"); trimmed != "" && len(path) <= MaxPathBytes {
		path = trimmed
	}
	return Clean(path)
}

// Within says whether a clean path is the prefix itself or below it, part by part: output/ab is not within output/a.
func Within(path, prefix string) bool {
	return path == prefix || len(path) > len(prefix) && path[len(prefix)] == '/' && path[:len(prefix)] == prefix
}

// withinAny says whether a path is within one of several prefixes and within the five roots. The second condition holds
// whatever a profile says: the run's own records (tool-args/, tool-results/, input/ and the like) are nobody's files.
func withinAny(path string, prefixes []string) bool {
	root, _, _ := strings.Cut(path, "/")
	if !isRoot(root) {
		return false
	}
	for _, p := range prefixes {
		if Within(path, p) {
			return true
		}
	}
	return false
}

func isRoot(name string) bool {
	for _, r := range Roots() {
		if name == r {
			return true
		}
	}
	return false
}

func isLetter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }

// show quotes a path for a message: invisible characters as escapes, long ones cut.
func show(path string) string {
	const most = 120
	cut := ""
	if len(path) > most {
		at := most
		for at > 0 && !utf8.RuneStart(path[at]) {
			at--
		}
		path, cut = path[:at], "..."
	}
	return strconv.Quote(path) + cut
}
