"""The only rooms that know Dagster. Each file translates one Dagster concept; none of them thinks."""
