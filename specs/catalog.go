package specs

import (
	"embed"
	"io/fs"
	"sync"
)

//go:embed catalog/*.yaml
var catalogFiles embed.FS

// CatalogPrefix starts the file names of shipped documents, in positions and findings.
const CatalogPrefix = "(built in)/"

// Catalog gives the shipped documents as the YAML they are written in.
func Catalog() fs.FS {
	sub, err := fs.Sub(catalogFiles, "catalog")
	if err != nil {
		return catalogFiles
	}
	return sub
}

type shippedCatalog struct {
	docs  []Document
	texts map[string]*sourceText
	found Diagnostics
}

// shipped reads the catalog once per process; documents are immutable and shared by all bundles.
var shipped = sync.OnceValue(func() shippedCatalog {
	out := shippedCatalog{texts: map[string]*sourceText{}}
	names, _ := fs.Glob(catalogFiles, "catalog/*.yaml")
	for _, name := range names {
		data, err := catalogFiles.ReadFile(name)
		if err != nil {
			continue // an embedded file that Glob named is there
		}
		src := newSourceText(CatalogPrefix+name[len("catalog/"):], string(data))
		out.texts[src.name] = src
		report := func(d Diagnostic) { out.found = append(out.found, d) }
		for _, root := range parseYAML(src, report) {
			r := &reader{strictness: &strictness{src: src, report: report, bad: root.bad}, level: PlatformLevel}
			if doc := readDocument(r, root.root); doc != nil {
				doc.Head().Shipped = true
				out.docs = append(out.docs, doc)
			}
		}
	}
	return out
})

func shippedDocuments() []Document         { return shipped().docs }
func shippedTexts() map[string]*sourceText { return shipped().texts }
