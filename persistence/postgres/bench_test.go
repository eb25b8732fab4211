package postgres_test

import (
	"testing"

	"github.com/callgate/callgate/persistence/persistencetest"
)

func BenchmarkApply(b *testing.B) { persistencetest.Bench(b, persistencetest.OnPostgres) }
