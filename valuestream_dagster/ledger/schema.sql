-- The ledger. Append-only: no UPDATE, no DELETE, no secondary index; every state is derived from the newest row
-- (decision 0002). times are UTC without a zone (no extension needed to read them). One row of `schema_history` per schema version that this file has had.

CREATE TABLE IF NOT EXISTS schema_history (
    version INTEGER NOT NULL, applied_at TIMESTAMP NOT NULL, program VARCHAR NOT NULL);

-- What a feed's declaration was, whenever it changed; `shape` is what the catalogue needs to build the feed's views.
CREATE TABLE IF NOT EXISTS feed_versions (
    feed VARCHAR NOT NULL, source VARCHAR NOT NULL, dataset VARCHAR NOT NULL, mode VARCHAR NOT NULL,
    config_hash VARCHAR NOT NULL, shape VARCHAR NOT NULL, recorded_at TIMESTAMP NOT NULL);

-- Discovery: the stamp under which an object was last looked at, and on behalf of which manifest.
CREATE TABLE IF NOT EXISTS objects_seen (
    feed VARCHAR NOT NULL, path VARCHAR NOT NULL, stamp VARCHAR NOT NULL, manifest VARCHAR NOT NULL,
    seen_at TIMESTAMP NOT NULL);

-- Every arrival and its verdict (M20). `key`, `kind`, `revision` are NULL where the manifest could not be read.
CREATE TABLE IF NOT EXISTS receipts (
    receipt_id VARCHAR NOT NULL, received_at TIMESTAMP NOT NULL, feed VARCHAR NOT NULL, kind VARCHAR, key VARCHAR,
    ordinal BIGINT, revision BIGINT, digest VARCHAR, verdict VARCHAR NOT NULL, code VARCHAR NOT NULL,
    detail VARCHAR NOT NULL, next VARCHAR NOT NULL, warnings VARCHAR[] NOT NULL, findings VARCHAR NOT NULL,
    run_id VARCHAR, manifest VARCHAR NOT NULL, manifest_sha256 VARCHAR);

-- An identity is bound to the digest of the first valid bytes that were sealed for it (ruling 1, M19).
CREATE TABLE IF NOT EXISTS deliveries (
    feed VARCHAR NOT NULL, kind VARCHAR NOT NULL, key VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    revision BIGINT NOT NULL, digest VARCHAR NOT NULL, manifest VARCHAR NOT NULL, manifest_sha256 VARCHAR NOT NULL,
    sealed_at TIMESTAMP NOT NULL);

CREATE TABLE IF NOT EXISTS epochs (
    feed VARCHAR NOT NULL, epoch INTEGER NOT NULL, baseline_key VARCHAR NOT NULL, baseline_ordinal BIGINT NOT NULL,
    anchor VARCHAR, opened_at TIMESTAMP NOT NULL, run_id VARCHAR);

-- A run is the outer barrier: nothing of it is visible before its row in run_ends (L8, L9).
CREATE TABLE IF NOT EXISTS runs (
    run_id VARCHAR NOT NULL, feed VARCHAR NOT NULL, fence BIGINT NOT NULL, dagster_run_id VARCHAR,
    holder VARCHAR NOT NULL, computation_hash VARCHAR NOT NULL, started_at TIMESTAMP NOT NULL,
    -- NULL: takes deliveries in; 'recompute': redoes published ones, and all such runs of a feed end together.
    purpose VARCHAR);
CREATE TABLE IF NOT EXISTS run_ends (
    run_id VARCHAR NOT NULL, feed VARCHAR NOT NULL, status VARCHAR NOT NULL, ended_at TIMESTAMP NOT NULL);

-- What happened to a slice: succeeded, failed, interrupted, conflict, waived. The newest row counts.
CREATE TABLE IF NOT EXISTS slice_events (
    feed VARCHAR NOT NULL, epoch INTEGER NOT NULL, kind VARCHAR NOT NULL, key VARCHAR NOT NULL,
    ordinal BIGINT NOT NULL, requires VARCHAR, requires_ordinal BIGINT, state VARCHAR NOT NULL, revision BIGINT,
    digest VARCHAR, run_id VARCHAR, publication_id VARCHAR, why VARCHAR, happened_at TIMESTAMP NOT NULL);

CREATE TABLE IF NOT EXISTS publications (
    publication_id VARCHAR NOT NULL, feed VARCHAR NOT NULL, kind VARCHAR NOT NULL, key VARCHAR NOT NULL,
    ordinal BIGINT NOT NULL, revision BIGINT NOT NULL, digest VARCHAR NOT NULL, computation_hash VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL, rows BIGINT NOT NULL, bytes BIGINT NOT NULL, totals VARCHAR NOT NULL,
    previous_key VARCHAR, position VARCHAR, epoch INTEGER NOT NULL, published_at TIMESTAMP NOT NULL);
CREATE TABLE IF NOT EXISTS files (
    publication_id VARCHAR NOT NULL, path VARCHAR NOT NULL, sha256 VARCHAR NOT NULL, bytes BIGINT NOT NULL,
    rows BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS lineage (
    publication_id VARCHAR NOT NULL, role VARCHAR NOT NULL, path VARCHAR NOT NULL, object_uri VARCHAR NOT NULL,
    object_version VARCHAR NOT NULL, sha256 VARCHAR NOT NULL, bytes BIGINT NOT NULL);

CREATE TABLE IF NOT EXISTS rulings (
    feed VARCHAR NOT NULL, key VARCHAR NOT NULL, kind VARCHAR, revision BIGINT, digest VARCHAR,
    ruling VARCHAR NOT NULL, "by" VARCHAR NOT NULL, why VARCHAR NOT NULL, ruled_at TIMESTAMP NOT NULL,
    -- The digests that were decided against: known bytes of the same revision that are never applied from here on.
    settles VARCHAR[]);
CREATE TABLE IF NOT EXISTS attempts (
    feed VARCHAR NOT NULL, key VARCHAR NOT NULL, revision BIGINT NOT NULL, destination VARCHAR NOT NULL,
    attempt INTEGER NOT NULL, state VARCHAR NOT NULL, code VARCHAR, retry BOOLEAN, effect VARCHAR, locator VARCHAR,
    digest VARCHAR, happened_at TIMESTAMP NOT NULL);

-- Publications of which Dagster's event log has a materialization.
CREATE TABLE IF NOT EXISTS reported (
    feed VARCHAR NOT NULL, publication_id VARCHAR NOT NULL, reported_at TIMESTAMP NOT NULL);

-- Immutable Parquet exports of the rows [from_row, to_row) of one table, in insertion order (ruling 15).
CREATE TABLE IF NOT EXISTS segments (
    "table" VARCHAR NOT NULL, from_row BIGINT NOT NULL, to_row BIGINT NOT NULL, path VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL, exported_at TIMESTAMP NOT NULL);

-- Publications that recovery found damaged: their run was interrupted and a file does not hold what was recorded (L15).
CREATE TABLE IF NOT EXISTS voided (
    publication_id VARCHAR NOT NULL, why VARCHAR NOT NULL, voided_at TIMESTAMP NOT NULL);

-- What decided the output of publications with that computation hash, as canonical JSON: told when an edit makes them stale.
CREATE TABLE IF NOT EXISTS computations (
    feed VARCHAR NOT NULL, computation_hash VARCHAR NOT NULL, decisive VARCHAR NOT NULL, recorded_at TIMESTAMP NOT NULL);

-- What vacuum removed from the store (path relative to it), and why. Written before the file goes.
CREATE TABLE IF NOT EXISTS removals (
    path VARCHAR NOT NULL, bytes BIGINT NOT NULL, why VARCHAR NOT NULL, publication_id VARCHAR,
    removed_at TIMESTAMP NOT NULL);

-- Which ledger this is, for the store's owner mark: one row.
CREATE TABLE IF NOT EXISTS ledger_identity (ledger_id VARCHAR NOT NULL, created_at TIMESTAMP NOT NULL);

-- What every question about success is asked of; `row` is the order in which rows were written.
CREATE VIEW IF NOT EXISTS good_publications AS
    SELECT rowid AS row, * FROM publications WHERE publication_id NOT IN (SELECT publication_id FROM voided);
CREATE VIEW IF NOT EXISTS good_slice_events AS
    SELECT rowid AS row, * FROM slice_events
    WHERE publication_id IS NULL OR publication_id NOT IN (SELECT publication_id FROM voided);
