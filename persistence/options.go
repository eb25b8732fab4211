package persistence

import "time"

// Options are what both adapters' Open take. The zero value is what a program wants.
type Options struct {
	// Now is the clock that stamps lines and decides expiry. Nil: the store's own, which is this machine's for
	// sqlite and the database server's for postgres, so that several processes agree. Tests set it.
	Now func() time.Time
}
