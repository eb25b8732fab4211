// Package persistencetest proves an implementation of persistence.Store, and gives tests a Postgres of their own.
//
// What you most likely want, for an adapter, is a folder of one-line tests that hand it to the laws of this
// package, and for anything else that needs a real database [Postgres]:
//
//	func TestMain(m *testing.M) { persistencetest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		store, err := postgres.Open(ctx, persistencetest.Postgres(t), postgres.Options{})
//		...
//	}
//
// The promises: a database of Postgres is migrated, empty and nobody else's; the server behind it is private to the
// test binary, listens on a Unix socket only, runs as an unprivileged user when the tests run as root, and is gone with
// its folder when the binary ends, however it ends. When no server can be had the test fails with the command that
// would fix it; nothing is ever skipped.
package persistencetest
