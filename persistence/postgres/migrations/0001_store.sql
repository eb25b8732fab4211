-- Times are microseconds since 1970, UTC; 0 is never. Digests are "sha256:<hex>". Bodies and payloads are the exact
-- bytes, never a JSON type.
-- Everything is in a schema of its own, so that a database can be shared. COLLATE "C" orders as bytes do.

-- The law: every edge of every lifecycle, filled from the machine room when the store is opened.
CREATE TABLE transitions (
	machine    TEXT COLLATE "C" NOT NULL,
	from_state TEXT COLLATE "C" NOT NULL, -- '' is the birth
	event      TEXT COLLATE "C" NOT NULL,
	to_state   TEXT COLLATE "C" NOT NULL,
	journal    TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (machine, from_state, event),
	UNIQUE (machine, from_state, event, to_state),
	UNIQUE (machine, from_state, event, to_state, journal)
);

-- Everything with a lifecycle: runs, calls, invocations, approvals.
CREATE TABLE subjects (
	tenant     TEXT COLLATE "C" NOT NULL CHECK (tenant <> ''),
	run        TEXT COLLATE "C" NOT NULL CHECK (run <> ''),
	machine    TEXT COLLATE "C" NOT NULL,
	id         TEXT COLLATE "C" NOT NULL,
	from_state TEXT COLLATE "C" NOT NULL,
	event      TEXT COLLATE "C" NOT NULL,
	state      TEXT COLLATE "C" NOT NULL,
	version    BIGINT NOT NULL,
	deadline   BIGINT NOT NULL,
	due        BIGINT NOT NULL, -- the deadline when the state waits on a timer, else 0
	ended      BIGINT NOT NULL, -- 1: the state is final
	created    BIGINT NOT NULL,
	updated    BIGINT NOT NULL,
	born       BIGINT NOT NULL, -- seq of the line of the birth
	body       BYTEA NOT NULL,
	PRIMARY KEY (tenant, run, machine, id),
	FOREIGN KEY (machine, from_state, event, state) REFERENCES transitions (machine, from_state, event, to_state)
);
CREATE INDEX subjects_newest ON subjects (tenant, machine, created, id);
CREATE INDEX subjects_due ON subjects (due) WHERE due > 0;
CREATE INDEX subjects_open ON subjects (tenant, run) WHERE ended = 0;
CREATE UNIQUE INDEX subjects_approval ON subjects (tenant, id) WHERE machine = 'approval';

-- One row a line, never changed.
CREATE TABLE journal (
	tenant     TEXT COLLATE "C" NOT NULL CHECK (tenant <> ''),
	run        TEXT COLLATE "C" NOT NULL, -- '' is the tenant's own
	seq        BIGINT NOT NULL CHECK (seq >= 1),
	id         TEXT COLLATE "C" NOT NULL,
	at         BIGINT NOT NULL,
	level      TEXT COLLATE "C" NOT NULL,
	kind       TEXT COLLATE "C" NOT NULL,
	payload    BYTEA NOT NULL,
	cause      BIGINT NOT NULL,
	request    TEXT COLLATE "C" NOT NULL,
	invocation TEXT COLLATE "C" NOT NULL,
	call       TEXT COLLATE "C" NOT NULL,
	related    TEXT COLLATE "C" NOT NULL,
	machine    TEXT COLLATE "C",
	subject    TEXT COLLATE "C",
	from_state TEXT COLLATE "C",
	event      TEXT COLLATE "C",
	to_state   TEXT COLLATE "C",
	holds      TEXT COLLATE "C" NOT NULL DEFAULT '', -- digests of the rows beside the journal that were written with the line
	prev       TEXT COLLATE "C" NOT NULL,
	hash       TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (tenant, run, seq),
	-- A foreign key with a NULL in it is not checked: all or none.
	CHECK ((machine IS NULL) = (subject IS NULL) AND (machine IS NULL) = (from_state IS NULL)
		AND (machine IS NULL) = (event IS NULL) AND (machine IS NULL) = (to_state IS NULL)),
	FOREIGN KEY (machine, from_state, event, to_state, kind) REFERENCES transitions (machine, from_state, event, to_state, journal)
);
CREATE INDEX journal_related ON journal (tenant, related, seq) WHERE run = '' AND related <> '';

-- The end of every chain.
CREATE TABLE heads (
	tenant TEXT COLLATE "C" NOT NULL,
	run    TEXT COLLATE "C" NOT NULL,
	seq    BIGINT NOT NULL,
	hash   TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (tenant, run)
);

-- What was applied, by key.
CREATE TABLE changes (
	tenant  TEXT COLLATE "C" NOT NULL,
	run     TEXT COLLATE "C" NOT NULL,
	key     TEXT COLLATE "C" NOT NULL,
	applied BYTEA NOT NULL,
	PRIMARY KEY (tenant, run, key)
);

CREATE TABLE leases (
	tenant TEXT COLLATE "C" NOT NULL,
	run    TEXT COLLATE "C" NOT NULL,
	owner  TEXT COLLATE "C" NOT NULL, -- '' when given back
	fence  BIGINT NOT NULL,
	until  BIGINT NOT NULL,
	PRIMARY KEY (tenant, run)
);

CREATE TABLE decisions (
	tenant        TEXT COLLATE "C" NOT NULL,
	run           TEXT COLLATE "C" NOT NULL,
	call          TEXT COLLATE "C" NOT NULL,
	phase         TEXT COLLATE "C" NOT NULL,
	attempt       BIGINT NOT NULL,
	seq           BIGINT NOT NULL,
	policy_digest TEXT COLLATE "C" NOT NULL,
	input         BYTEA NOT NULL,
	output        BYTEA NOT NULL,
	replayable    BOOLEAN NOT NULL,
	PRIMARY KEY (tenant, run, call, phase, attempt)
);

CREATE TABLE counters (
	tenant   TEXT COLLATE "C" NOT NULL,
	key      TEXT COLLATE "C" NOT NULL,
	lim      BIGINT NOT NULL,
	spent    BIGINT NOT NULL CHECK (spent >= 0),
	reserved BIGINT NOT NULL CHECK (reserved >= 0),
	PRIMARY KEY (tenant, key),
	CHECK (spent <= lim AND reserved <= lim - spent)
);

-- Open reservations only; settling removes them.
CREATE TABLE reservations (
	tenant      TEXT COLLATE "C" NOT NULL,
	run         TEXT COLLATE "C" NOT NULL,
	call        TEXT COLLATE "C" NOT NULL,
	counter     TEXT COLLATE "C" NOT NULL,
	lim         BIGINT NOT NULL,
	amount      BIGINT NOT NULL CHECK (amount >= 0),
	lease_until BIGINT NOT NULL,
	PRIMARY KEY (tenant, run, call, counter),
	FOREIGN KEY (tenant, counter) REFERENCES counters (tenant, key)
);

CREATE TABLE blobs (
	tenant     TEXT COLLATE "C" NOT NULL,
	digest     TEXT COLLATE "C" NOT NULL,
	media_type TEXT COLLATE "C" NOT NULL,
	data       BYTEA NOT NULL,
	PRIMARY KEY (tenant, digest)
);

CREATE TABLE artifacts (
	tenant TEXT COLLATE "C" NOT NULL,
	run    TEXT COLLATE "C" NOT NULL,
	name   TEXT COLLATE "C" NOT NULL,
	digest TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (tenant, run, name),
	FOREIGN KEY (tenant, digest) REFERENCES blobs (tenant, digest)
);

CREATE TABLE trees (
	tenant  TEXT COLLATE "C" NOT NULL,
	tree    TEXT COLLATE "C" NOT NULL,
	version BIGINT NOT NULL,
	PRIMARY KEY (tenant, tree)
);

-- The manifest of version v: the rows with since <= v that are not yet ended at v.
CREATE TABLE tree_files (
	tenant TEXT COLLATE "C" NOT NULL,
	tree   TEXT COLLATE "C" NOT NULL,
	path   TEXT COLLATE "C" NOT NULL CHECK (path <> ''),
	since  BIGINT NOT NULL,
	until  BIGINT NOT NULL, -- the version in which it is gone or replaced; 0: still there
	digest TEXT COLLATE "C" NOT NULL,
	size   BIGINT NOT NULL,
	PRIMARY KEY (tenant, tree, path, since),
	FOREIGN KEY (tenant, digest) REFERENCES blobs (tenant, digest)
);
CREATE UNIQUE INDEX tree_files_now ON tree_files (tenant, tree, path) WHERE until = 0;

CREATE TABLE checkpoints (
	tenant  TEXT COLLATE "C" NOT NULL,
	tree    TEXT COLLATE "C" NOT NULL,
	version BIGINT NOT NULL,
	label   TEXT COLLATE "C" NOT NULL,
	reason  TEXT COLLATE "C" NOT NULL,
	call    TEXT COLLATE "C" NOT NULL,
	at      BIGINT NOT NULL,
	PRIMARY KEY (tenant, tree, version)
);

CREATE TABLE reads (
	tenant     TEXT COLLATE "C" NOT NULL,
	run        TEXT COLLATE "C" NOT NULL,
	invocation TEXT COLLATE "C" NOT NULL,
	path       TEXT COLLATE "C" NOT NULL,
	digest     TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (tenant, run, invocation, path)
);

CREATE TABLE grants (
	tenant  TEXT COLLATE "C" NOT NULL,
	id      TEXT COLLATE "C" NOT NULL,
	run     TEXT COLLATE "C" NOT NULL,
	created BIGINT NOT NULL,
	expires BIGINT NOT NULL,
	revoked BIGINT NOT NULL,
	body    BYTEA NOT NULL,
	PRIMARY KEY (tenant, id)
);

-- seq is the line of the tenant's own journal that the row was written with.
CREATE TABLE bundles (
	tenant  TEXT COLLATE "C" NOT NULL,
	digest  TEXT COLLATE "C" NOT NULL,
	seq     BIGINT NOT NULL,
	author  TEXT COLLATE "C" NOT NULL,
	applied BIGINT NOT NULL,
	files   BYTEA NOT NULL,
	PRIMARY KEY (tenant, digest)
);

CREATE TABLE activations (
	tenant   TEXT COLLATE "C" NOT NULL,
	seq      BIGINT NOT NULL,
	digest   TEXT COLLATE "C" NOT NULL,
	previous TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (tenant, seq),
	FOREIGN KEY (tenant, digest) REFERENCES bundles (tenant, digest)
);

-- The database repeats the law, for those who come by another door.
CREATE FUNCTION subjects_birth() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.from_state <> '' OR NEW.version <> 1 THEN
		RAISE EXCEPTION 'a record begins once, with its birth';
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER subjects_birth BEFORE INSERT ON subjects FOR EACH ROW EXECUTE FUNCTION subjects_birth();

CREATE FUNCTION subjects_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.from_state <> OLD.state OR NEW.version <> OLD.version + 1 OR NEW.tenant <> OLD.tenant OR NEW.run <> OLD.run
		OR NEW.machine <> OLD.machine OR NEW.id <> OLD.id THEN
		RAISE EXCEPTION 'a record moves from the state that it is in';
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER subjects_move BEFORE UPDATE ON subjects FOR EACH ROW EXECUTE FUNCTION subjects_move();

CREATE FUNCTION journal_keeps() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'the journal is append-only';
END $$;
CREATE TRIGGER journal_update BEFORE UPDATE ON journal FOR EACH ROW EXECUTE FUNCTION journal_keeps();
CREATE TRIGGER journal_delete BEFORE DELETE ON journal FOR EACH ROW EXECUTE FUNCTION journal_keeps();
CREATE TRIGGER journal_truncate BEFORE TRUNCATE ON journal FOR EACH STATEMENT EXECUTE FUNCTION journal_keeps();
