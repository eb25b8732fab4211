package specs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Level says who wrote a bundle, and so what it may contain.
type Level int

// Levels. Only the operator's documents may name a command, an address, a secret reference or a folder, and only
// they may speak in a platform layer.
const (
	PlatformLevel Level = iota
	TenantLevel
)

// LoadOptions says how to load. The zero value loads an operator's own folder together with the shipped catalog.
type LoadOptions struct {
	Level Level
	// NoCatalog leaves out the shipped tools and default layers.
	NoCatalog bool
	// MaxFileBytes bounds one file; default 8 MiB.
	MaxFileBytes int64
	// MaxBytes bounds all files together; default 64 MiB.
	MaxBytes int64
	// Draft gives the bundle beside the error, with its broken documents as far as they could be read, so that whoever looks for
	// mistakes can go on looking. Nothing may be decided by a draft.
	Draft bool
	// Partial gives a bundle although documents are unusable: they are left out, and the layers that may have
	// spoken through them are listed as Unreadable, so that they deny.
	Partial bool
}

const (
	defaultMaxFileBytes = 8 << 20
	defaultMaxBytes     = 64 << 20
	maxFiles            = 20000
	// maxFindings is how many findings are kept; nobody reads more, and a hostile file must not fill memory.
	maxFindings = 1000
)

// Load reads every *.yaml and *.yml file below a folder, except below `scripts/` at its top (model scripts) and
// below names that start with a dot, and gives one bundle. When anything is wrong the error is a *InvalidError
// that holds every finding of every file in file order; a folder that cannot be read is such a finding too, and
// errors.Is finds the cause (fs.ErrNotExist).
func Load(fsys fs.FS, opts LoadOptions) (*Bundle, error) {
	l := newLoader(opts)
	l.walk(fsys)
	return l.finish()
}

// LoadFiles is Load for files that are kept elsewhere than in a file system.
func LoadFiles(files []File, opts LoadOptions) (*Bundle, error) {
	l := newLoader(opts)
	total := int64(0)
	for _, f := range files {
		size := int64(len(f.Data))
		if size > l.opts.MaxFileBytes || total+size > l.opts.MaxBytes {
			l.tooLarge(f.Name, size)
			continue
		}
		total += size
		l.files = append(l.files, f)
	}
	return l.finish()
}

type loader struct {
	opts    LoadOptions
	files   []File
	found   Diagnostics
	dropped int
	cause   error
	sources map[string]*sourceText
	docs    []Document
	broken  map[Document]bool // documents with errors of their own
	unread  []LayerName
}

func newLoader(opts LoadOptions) *loader {
	fill(&opts.MaxFileBytes, defaultMaxFileBytes)
	fill(&opts.MaxBytes, defaultMaxBytes)
	return &loader{opts: opts, sources: map[string]*sourceText{}, broken: map[Document]bool{}}
}

func (l *loader) report(d Diagnostic) {
	if len(l.found) >= maxFindings {
		if d.Severity != Warning {
			l.dropped++
		}
		return
	}
	if d.Severity == "" {
		d.Severity = Error
	}
	if src := l.sources[d.Pos.File]; src != nil && d.Pos.Line > 0 {
		d.Source, d.SourceCol = excerpt(src.line(d.Pos.Line), d.Pos.Col)
		d.Width = max(1, min(d.Width, maxShown))
	}
	l.found = append(l.found, d)
}

func (l *loader) tooLarge(name string, size int64) {
	l.report(Diagnostic{Pos: Pos{File: name}, Code: "too-large",
		Message: fmt.Sprintf("this file of %d bytes is larger than a bundle may be (%d a file, %d together)", size, l.opts.MaxFileBytes, l.opts.MaxBytes)})
	l.unreadable(l.anyLayer())
}

// walk collects the files of a folder.
func (l *loader) walk(fsys fs.FS) {
	total := int64(0)
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			l.unreadableFile(name, err)
			if entry != nil && entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case name != "." && strings.HasPrefix(path.Base(name), "."), name == "scripts" && entry.IsDir():
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir() || !isYAMLName(name):
			return nil
		}
		info, err := fs.Stat(fsys, name) // follows links: a mounted configuration is full of them
		if err != nil {
			l.unreadableFile(name, err)
			return nil
		}
		if info.IsDir() {
			return nil
		}
		if !info.Mode().IsRegular() { // a pipe would wait for ever
			l.report(Diagnostic{Pos: Pos{File: name}, Code: "not-a-file", Message: "this is not a regular file"})
			l.unreadable(l.anyLayer())
			return nil
		}
		if info.Size() > l.opts.MaxFileBytes || total+info.Size() > l.opts.MaxBytes {
			l.tooLarge(name, info.Size())
			return nil
		}
		total += info.Size()
		data, err := readBounded(fsys, name, l.opts.MaxFileBytes)
		if err != nil {
			l.unreadableFile(name, err)
			return nil
		}
		if int64(len(data)) > l.opts.MaxFileBytes {
			l.tooLarge(name, int64(len(data)))
			return nil
		}
		if l.files = append(l.files, File{Name: name, Data: data}); len(l.files) > maxFiles {
			return errTooManyFiles
		}
		return nil
	})
	if err != nil {
		l.report(Diagnostic{Code: "too-many-files", Message: fmt.Sprintf("there are more than %d files here", maxFiles)})
		l.cause = err
	}
}

var errTooManyFiles = errors.New("too many files")

func isYAMLName(name string) bool {
	ext := path.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// readBounded reads a file, one byte more than allowed at most: it may have grown since it was measured.
func readBounded(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

func (l *loader) unreadableFile(name string, err error) {
	d := Diagnostic{Pos: Pos{File: name}, Code: "unreadable", Message: "this cannot be read: " + reasonOf(err)}
	if name == "." {
		d = Diagnostic{Code: "unreadable", Message: "the bundle folder cannot be read: " + reasonOf(err)}
		if errors.Is(err, fs.ErrNotExist) {
			d = Diagnostic{Code: "no-folder", Message: "the bundle folder does not exist", Hint: "callgate init DIR makes one"}
		}
	}
	l.report(d)
	l.unreadable(l.anyLayer())
	if l.cause == nil {
		l.cause = err
	}
}

// reasonOf drops the path that a PathError repeats.
func reasonOf(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// anyLayer is the layer that stands for "nobody knows which": unreadable, it denies everything.
func (l *loader) anyLayer() LayerName {
	if l.opts.Level == TenantLevel {
		return LayerUser
	}
	return LayerPlatform
}

func (l *loader) unreadable(layer LayerName) {
	if !slices.Contains(l.unread, layer) {
		l.unread = append(l.unread, layer)
	}
}

// finish reads the collected files and builds the bundle.
func (l *loader) finish() (*Bundle, error) {
	slices.SortFunc(l.files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	l.files = slices.CompactFunc(l.files, func(a, b File) bool {
		if a.Name == b.Name {
			l.report(Diagnostic{Pos: Pos{File: a.Name}, Code: "duplicate-file", Message: "this file is there twice"})
		}
		return a.Name == b.Name
	})
	l.readFiles(l.files)
	if len(l.docs) == 0 && len(l.found.Errors()) == 0 {
		switch {
		case len(l.files) == 0:
			l.report(Diagnostic{Code: "no-yaml", Message: "there is no .yaml or .yml file here", Hint: "callgate init DIR makes a small bundle to start from"})
		default:
			l.report(Diagnostic{Pos: Pos{File: l.files[0].Name}, Code: "no-documents", Message: "there is no document in this bundle", Hint: "a document starts with apiVersion: " + APIVersion})
		}
	}
	b := l.build()
	l.found.Sort()
	if l.dropped > 0 {
		l.found = append(l.found, Diagnostic{Severity: Error, Code: "too-many-findings", Message: fmt.Sprintf("and %d more", l.dropped)})
	}
	if err := l.found.Err(); err != nil && !l.opts.Partial {
		invalid := &InvalidError{Diagnostics: l.found, cause: l.cause}
		if l.opts.Draft {
			return b, invalid
		}
		return nil, invalid
	}
	b.Warnings = l.found
	b.Unreadable = l.unread
	return b, nil
}

// readFiles reads the files on all processors and takes what they say in file order.
func (l *loader) readFiles(files []File) {
	read := make([]fileContent, len(files))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(files)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(files); i = int(next.Add(1)) - 1 {
				read[i] = readFile(files[i], l.opts.Level)
			}
		})
	}
	wg.Wait()
	for _, c := range read {
		if c.src != nil {
			l.sources[c.src.name] = c.src
		}
		for _, d := range c.found {
			l.report(d)
		}
		l.dropped += c.dropped
		if c.unreadable {
			l.unreadable(l.anyLayer())
		}
		l.docs = append(l.docs, c.docs...)
		for _, d := range c.broken {
			l.broken[d] = true
		}
	}
}

// fileContent is what one file says.
type fileContent struct {
	src        *sourceText
	docs       []Document
	broken     []Document // those with mistakes
	found      Diagnostics
	dropped    int
	unreadable bool // something in it could not even be told to be a document
}

func readFile(f File, level Level) fileContent {
	c := fileContent{}
	wrong := false
	report := func(d Diagnostic) {
		if d.Severity != Warning {
			wrong = true
		}
		if len(c.found) >= maxFindings {
			c.dropped++
			return
		}
		c.found = append(c.found, d)
	}
	var roots []parsed
	if c.src = openText(f, report); c.src != nil {
		roots = parseYAML(c.src, report)
	}
	c.unreadable = wrong
	for _, root := range roots {
		wrong = len(root.bad) > 0
		r := &reader{strictness: &strictness{src: c.src, report: report, bad: root.bad}, level: level}
		doc := readDocument(r, root.root)
		if doc == nil {
			c.unreadable = true
			continue
		}
		c.docs = append(c.docs, doc)
		if wrong {
			c.broken = append(c.broken, doc)
		}
	}
	return c
}

// openText makes lines of a file; nil when it is no text at all, which was reported.
func openText(f File, report func(Diagnostic)) *sourceText {
	data := f.Data
	if len(data) >= 3 && string(data[:3]) == "\ufeff" {
		data = data[3:]
	}
	if offset, code, message, hint := badText(data); offset >= 0 {
		line, col := placeOf(data, offset)
		if code == "not-utf8" && len(f.Data) >= 2 && (f.Data[0] == 0xff && f.Data[1] == 0xfe || f.Data[0] == 0xfe && f.Data[1] == 0xff) {
			message = "this is UTF-16 text"
		}
		report(Diagnostic{Pos: Pos{f.Name, line, col}, Code: code, Message: message, Hint: hint, Width: 1})
		return nil
	}
	src := newSourceText(f.Name, string(data))
	for i, line := range src.lines {
		if at := strings.IndexFunc(line, reorders); at >= 0 {
			r, _ := utf8.DecodeRuneInString(line[at:])
			report(Diagnostic{Pos: Pos{f.Name, i + 1, 1 + utf8.RuneCountInString(line[:at])}, Severity: Warning, Code: "invisible-character", Width: 1,
				Message: "the invisible character " + codePoint(r) + " changes the order in which this line is shown", Hint: "people who review this file may see something else than what it says"})
		}
	}
	return src
}

// reorders finds the characters that make a line look different from what it says.
func reorders(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }
