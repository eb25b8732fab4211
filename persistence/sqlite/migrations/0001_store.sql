-- Times are microseconds since 1970, UTC; 0 is never. Digests are "sha256:<hex>". Bodies and payloads are the exact
-- bytes, never a JSON type.

-- The law: every edge of every lifecycle, filled from the machine room when the store is opened.
CREATE TABLE transitions (
	machine    TEXT NOT NULL,
	from_state TEXT NOT NULL, -- '' is the birth
	event      TEXT NOT NULL,
	to_state   TEXT NOT NULL,
	journal    TEXT NOT NULL,
	PRIMARY KEY (machine, from_state, event),
	UNIQUE (machine, from_state, event, to_state),
	UNIQUE (machine, from_state, event, to_state, journal)
) STRICT, WITHOUT ROWID;

-- Everything with a lifecycle: runs, calls, invocations, approvals.
CREATE TABLE subjects (
	tenant     TEXT NOT NULL CHECK (tenant <> ''),
	run        TEXT NOT NULL CHECK (run <> ''),
	machine    TEXT NOT NULL,
	id         TEXT NOT NULL,
	from_state TEXT NOT NULL,
	event      TEXT NOT NULL,
	state      TEXT NOT NULL,
	version    INTEGER NOT NULL,
	deadline   INTEGER NOT NULL,
	due        INTEGER NOT NULL, -- the deadline when the state waits on a timer, else 0
	ended      INTEGER NOT NULL, -- 1: the state is final
	created    INTEGER NOT NULL,
	updated    INTEGER NOT NULL,
	born       INTEGER NOT NULL, -- seq of the line of the birth
	body       BLOB NOT NULL,
	PRIMARY KEY (tenant, run, machine, id),
	FOREIGN KEY (machine, from_state, event, state) REFERENCES transitions (machine, from_state, event, to_state)
) STRICT;
CREATE INDEX subjects_newest ON subjects (tenant, machine, created, id);
CREATE INDEX subjects_due ON subjects (due) WHERE due > 0;
CREATE INDEX subjects_open ON subjects (tenant, run) WHERE ended = 0;
CREATE UNIQUE INDEX subjects_approval ON subjects (tenant, id) WHERE machine = 'approval';

-- Foreign keys hold only on connections that ask for them, and the sqlite3 program does not. Triggers always hold.
CREATE TRIGGER subjects_birth BEFORE INSERT ON subjects
WHEN NEW.from_state <> '' OR NEW.version <> 1 OR EXISTS (SELECT 1 FROM subjects s
	WHERE s.tenant = NEW.tenant AND s.run = NEW.run AND s.machine = NEW.machine AND s.id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'a record begins once, with its birth'); END;
CREATE TRIGGER subjects_move BEFORE UPDATE ON subjects
WHEN NEW.from_state <> OLD.state OR NEW.version <> OLD.version + 1 OR NEW.tenant <> OLD.tenant OR NEW.run <> OLD.run
	OR NEW.machine <> OLD.machine OR NEW.id <> OLD.id
BEGIN SELECT RAISE(ABORT, 'a record moves from the state that it is in'); END;
CREATE TRIGGER subjects_law_birth BEFORE INSERT ON subjects
WHEN NOT EXISTS (SELECT 1 FROM transitions t
	WHERE t.machine = NEW.machine AND t.from_state = NEW.from_state AND t.event = NEW.event AND t.to_state = NEW.state)
BEGIN SELECT RAISE(ABORT, 'the move is not in the table'); END;
CREATE TRIGGER subjects_law_move BEFORE UPDATE ON subjects
WHEN NOT EXISTS (SELECT 1 FROM transitions t
	WHERE t.machine = NEW.machine AND t.from_state = NEW.from_state AND t.event = NEW.event AND t.to_state = NEW.state)
BEGIN SELECT RAISE(ABORT, 'the move is not in the table'); END;

-- One row a line, never changed.
CREATE TABLE journal (
	tenant     TEXT NOT NULL CHECK (tenant <> ''),
	run        TEXT NOT NULL, -- '' is the tenant's own
	seq        INTEGER NOT NULL CHECK (seq >= 1),
	id         TEXT NOT NULL,
	at         INTEGER NOT NULL,
	level      TEXT NOT NULL,
	kind       TEXT NOT NULL,
	payload    BLOB NOT NULL,
	cause      INTEGER NOT NULL,
	request    TEXT NOT NULL,
	invocation TEXT NOT NULL,
	call       TEXT NOT NULL,
	related    TEXT NOT NULL,
	machine    TEXT,
	subject    TEXT,
	from_state TEXT,
	event      TEXT,
	to_state   TEXT,
	holds      TEXT NOT NULL DEFAULT '', -- digests of the rows beside the journal that were written with the line
	prev       TEXT NOT NULL,
	hash       TEXT NOT NULL,
	PRIMARY KEY (tenant, run, seq),
	-- A foreign key with a NULL in it is not checked: all or none.
	CHECK ((machine IS NULL) = (subject IS NULL) AND (machine IS NULL) = (from_state IS NULL)
		AND (machine IS NULL) = (event IS NULL) AND (machine IS NULL) = (to_state IS NULL)),
	FOREIGN KEY (machine, from_state, event, to_state, kind) REFERENCES transitions (machine, from_state, event, to_state, journal)
) STRICT, WITHOUT ROWID;
CREATE INDEX journal_related ON journal (tenant, related, seq) WHERE run = '' AND related <> '';

CREATE TRIGGER journal_update BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_delete BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
-- INSERT OR REPLACE deletes without asking the trigger above.
CREATE TRIGGER journal_replace BEFORE INSERT ON journal
WHEN EXISTS (SELECT 1 FROM journal j WHERE j.tenant = NEW.tenant AND j.run = NEW.run AND j.seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

CREATE TRIGGER journal_law BEFORE INSERT ON journal
WHEN NEW.machine IS NOT NULL AND NOT EXISTS (SELECT 1 FROM transitions t WHERE t.machine = NEW.machine
	AND t.from_state = NEW.from_state AND t.event = NEW.event AND t.to_state = NEW.to_state AND t.journal = NEW.kind)
BEGIN SELECT RAISE(ABORT, 'the move is not in the table'); END;

-- The end of every chain.
CREATE TABLE heads (
	tenant TEXT NOT NULL,
	run    TEXT NOT NULL,
	seq    INTEGER NOT NULL,
	hash   TEXT NOT NULL,
	PRIMARY KEY (tenant, run)
) STRICT, WITHOUT ROWID;

-- What was applied, by key.
CREATE TABLE changes (
	tenant  TEXT NOT NULL,
	run     TEXT NOT NULL,
	key     TEXT NOT NULL,
	applied BLOB NOT NULL,
	PRIMARY KEY (tenant, run, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
	tenant TEXT NOT NULL,
	run    TEXT NOT NULL,
	owner  TEXT NOT NULL, -- '' when given back
	fence  INTEGER NOT NULL,
	until  INTEGER NOT NULL,
	PRIMARY KEY (tenant, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE decisions (
	tenant        TEXT NOT NULL,
	run           TEXT NOT NULL,
	call          TEXT NOT NULL,
	phase         TEXT NOT NULL,
	attempt       INTEGER NOT NULL,
	seq           INTEGER NOT NULL,
	policy_digest TEXT NOT NULL,
	input         BLOB NOT NULL,
	output        BLOB NOT NULL,
	replayable    INTEGER NOT NULL,
	PRIMARY KEY (tenant, run, call, phase, attempt)
) STRICT;

CREATE TABLE counters (
	tenant   TEXT NOT NULL,
	key      TEXT NOT NULL,
	lim      INTEGER NOT NULL,
	spent    INTEGER NOT NULL CHECK (spent >= 0),
	reserved INTEGER NOT NULL CHECK (reserved >= 0),
	PRIMARY KEY (tenant, key),
	CHECK (spent <= lim AND reserved <= lim - spent)
) STRICT, WITHOUT ROWID;

-- Open reservations only; settling removes them.
CREATE TABLE reservations (
	tenant      TEXT NOT NULL,
	run         TEXT NOT NULL,
	call        TEXT NOT NULL,
	counter     TEXT NOT NULL,
	lim         INTEGER NOT NULL,
	amount      INTEGER NOT NULL CHECK (amount >= 0),
	lease_until INTEGER NOT NULL,
	PRIMARY KEY (tenant, run, call, counter),
	FOREIGN KEY (tenant, counter) REFERENCES counters (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
	tenant     TEXT NOT NULL,
	digest     TEXT NOT NULL,
	media_type TEXT NOT NULL,
	data       BLOB NOT NULL,
	PRIMARY KEY (tenant, digest)
) STRICT;

CREATE TABLE artifacts (
	tenant TEXT NOT NULL,
	run    TEXT NOT NULL,
	name   TEXT NOT NULL,
	digest TEXT NOT NULL,
	PRIMARY KEY (tenant, run, name),
	FOREIGN KEY (tenant, digest) REFERENCES blobs (tenant, digest)
) STRICT, WITHOUT ROWID;

CREATE TABLE trees (
	tenant  TEXT NOT NULL,
	tree    TEXT NOT NULL,
	version INTEGER NOT NULL,
	PRIMARY KEY (tenant, tree)
) STRICT, WITHOUT ROWID;

-- The manifest of version v: the rows with since <= v that are not yet ended at v.
CREATE TABLE tree_files (
	tenant TEXT NOT NULL,
	tree   TEXT NOT NULL,
	path   TEXT NOT NULL CHECK (path <> ''),
	since  INTEGER NOT NULL,
	until  INTEGER NOT NULL, -- the version in which it is gone or replaced; 0: still there
	digest TEXT NOT NULL,
	size   INTEGER NOT NULL,
	PRIMARY KEY (tenant, tree, path, since),
	FOREIGN KEY (tenant, digest) REFERENCES blobs (tenant, digest)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX tree_files_now ON tree_files (tenant, tree, path) WHERE until = 0;

CREATE TABLE checkpoints (
	tenant  TEXT NOT NULL,
	tree    TEXT NOT NULL,
	version INTEGER NOT NULL,
	label   TEXT NOT NULL,
	reason  TEXT NOT NULL,
	call    TEXT NOT NULL,
	at      INTEGER NOT NULL,
	PRIMARY KEY (tenant, tree, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE reads (
	tenant     TEXT NOT NULL,
	run        TEXT NOT NULL,
	invocation TEXT NOT NULL,
	path       TEXT NOT NULL,
	digest     TEXT NOT NULL,
	PRIMARY KEY (tenant, run, invocation, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE grants (
	tenant  TEXT NOT NULL,
	id      TEXT NOT NULL,
	run     TEXT NOT NULL,
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	revoked INTEGER NOT NULL,
	body    BLOB NOT NULL,
	PRIMARY KEY (tenant, id)
) STRICT;

-- seq is the line of the tenant's own journal that the row was written with.
CREATE TABLE bundles (
	tenant  TEXT NOT NULL,
	digest  TEXT NOT NULL,
	seq     INTEGER NOT NULL,
	author  TEXT NOT NULL,
	applied INTEGER NOT NULL,
	files   BLOB NOT NULL,
	PRIMARY KEY (tenant, digest)
) STRICT;

CREATE TABLE activations (
	tenant   TEXT NOT NULL,
	seq      INTEGER NOT NULL,
	digest   TEXT NOT NULL,
	previous TEXT NOT NULL,
	PRIMARY KEY (tenant, seq),
	FOREIGN KEY (tenant, digest) REFERENCES bundles (tenant, digest)
) STRICT, WITHOUT ROWID;
