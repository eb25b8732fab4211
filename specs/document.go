package specs

// Document is one YAML document of a bundle.
type Document interface {
	// Head gives the part that all kinds share.
	Head() *Meta
}

// Meta is `apiVersion`, `kind` and `metadata`, with the place where the document starts.
type Meta struct {
	Kind        Kind
	Name        string
	Description string            // metadata.description, for people
	Labels      map[string]string // metadata.labels
	Pos         Pos               // the document
	NamePos     Pos               // the value of metadata.name
	// Shipped says that the document comes from the catalog built into the program, not from the tenant.
	Shipped bool
}

// Head implements Document for every kind that embeds Meta.
func (m *Meta) Head() *Meta { return m }
