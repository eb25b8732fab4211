package specs

import (
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// locateSyntax turns the YAML library's complaint into a finding at the true place. The library often names
// the line where it gave up, or the one before; the scan below looks for what a person did wrong.
func locateSyntax(src *sourceText, from, to int, err error) Diagnostic {
	if d, found := scanSyntax(src, from, to); found {
		return d
	}
	line, message := from, strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		if n, bad := strconv.Atoi(m[1]); bad == nil {
			line = from + n - 1
		}
		message = m[2]
	}
	line = max(from, min(line, to-1))
	return Diagnostic{Pos: Pos{src.name, line, indentOf(src.row(line)) + 1}, Code: "yaml-syntax", Width: 1,
		Message: "this is not YAML, near here: " + message}
}

var _ = yaml.ScalarNode
