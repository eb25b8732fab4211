package apply

import (
	"errors"
	"time"

	"github.com/callgate/callgate/persistence"
)

// Lease decides who works on a run: it answers the lease to be written, *persistence.HeldError, or ErrStale for a
// run that has ended. held is what is stored, nil when nobody ever held it; dead is the fence of a holder that the
// caller knows to be gone, 0 for none.
func Lease(held *persistence.Lease, ended bool, dead int64, now time.Time, owner string, ttl time.Duration) (persistence.Lease, error) {
	next := persistence.Lease{Owner: owner, Fence: 1, Until: now.Add(ttl).UTC().Truncate(time.Microsecond)}
	switch {
	case owner == "" || ttl <= 0:
		return persistence.Lease{}, invalid("a lease for %q of %s", owner, ttl)
	case ended:
		return persistence.Lease{}, persistence.ErrStale
	case held == nil:
		return next, nil
	case held.Owner != "" && now.Before(held.Until) && held.Fence != dead:
		return persistence.Lease{}, &persistence.HeldError{Owner: held.Owner, Until: held.Until}
	}
	next.Fence = held.Fence + 1
	return next, nil
}

// Acquire tries a lease, and when somebody holds it asks takeover, outside of any transaction, whether that one is
// dead; then it tries once more with the answer in *dead. A holder that came in between is asked about too, twice at most.
func Acquire(takeover func(holder string) bool, dead *int64, try func() (got persistence.Lease, held *persistence.Lease, err error)) (persistence.Lease, error) {
	for range 2 {
		got, held, err := try()
		var busy *persistence.HeldError
		if !errors.As(err, &busy) || takeover == nil || !takeover(busy.Owner) {
			return got, err
		}
		*dead = held.Fence
	}
	got, _, err := try()
	return got, err
}
