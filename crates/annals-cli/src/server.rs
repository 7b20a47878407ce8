//! Stores on a PostgreSQL server, which a URL names in place of a path (feature `postgres`). *Absent:* keys: a server
//! has the content in the clear.

use std::path::Path;

use annals::store::{OpenOptions, Store, StoreError};

use crate::errors::CommandFailure;

/// Returns the URL of a server, if a name of a store is one.
pub fn url(name: &Path) -> Option<&str> {
    let name = name.to_str()?;
    ["postgres://", "postgresql://"].iter().any(|scheme| name.starts_with(scheme)).then_some(name)
}

/// Returns the name of a store as messages show it: a URL without its user, password and parameters.
pub fn shown(name: &Path) -> String {
    let Some(url) = url(name) else { return name.display().to_string() };
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let host = parameters.split('&').find_map(|parameter| parameter.strip_prefix("host="));
    let shown = match (place.strip_prefix("localhost/").or(place.strip_prefix('/')), host) {
        // A socket stands among the parameters.
        (Some(database), Some(host)) => format!("{host}/{database}"),
        _ => place.to_owned(),
    };
    format!("postgres://{shown}")
}

/// Opens the store in the database of a URL. Of the options about a file, `create` and `read_only` decide whether
/// missing tables are made; the others have no effect.
///
/// # Errors
/// [`StoreError::Open`] if the URL is not one, or the server is not reached or refuses; [`StoreError::NotAStore`] of a
/// database without tables, if the options do not allow to make them; [`StoreError::Unsupported`] without the feature
/// `postgres`.
#[cfg(feature = "postgres")]
pub fn open_server(url: &str, options: OpenOptions) -> Result<Store, StoreError> {
    annals_postgres::open_with(url, options)
}

/// Refuses a URL.
///
/// # Errors
/// [`StoreError::Unsupported`].
#[cfg(not(feature = "postgres"))]
pub fn open_server(_: &str, _: OpenOptions) -> Result<Store, StoreError> {
    let reason = "it was built without the feature postgres".into();
    Err(StoreError::Unsupported { feature: "a store on a server", reason })
}

/// Opens the store in the database of a URL.
pub(crate) fn open(url: &str, options: OpenOptions) -> Result<Store, CommandFailure> {
    open_server(url, options).map_err(|error| match error {
        StoreError::NotAStore { .. } => {
            CommandFailure::not_found("store_not_found", format!("{} has no tables of a store", shown(url.as_ref())))
                .hint("annals copy --to URL makes them, and so does a program that opens the store")
        }
        StoreError::Unsupported { .. } => without_feature(url),
        error => error.into(),
    })
}

/// Returns the bytes of the tables and indexes of a store.
#[cfg(feature = "postgres")]
pub(crate) fn size_bytes(url: &str) -> Result<u64, CommandFailure> {
    Ok(annals_postgres::PostgresBackend::connect_with(url, false)?.size_bytes()?)
}

/// Refuses a URL.
#[cfg(not(feature = "postgres"))]
pub(crate) fn size_bytes(url: &str) -> Result<u64, CommandFailure> {
    Err(without_feature(url))
}

fn without_feature(url: &str) -> CommandFailure {
    let message = format!("{} is on a server, and this annals was built for files alone", shown(url.as_ref()));
    CommandFailure::new(2, "no_postgres", message).hint("build it with the feature postgres")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (name, text) in [
            ("postgres://app:p%40ss@db.example:5433/annals?sslmode=disable", "postgres://db.example:5433/annals"),
            ("postgresql://app:a@b@db/annals?password=secret", "postgres://db/annals"),
            ("postgres://app@localhost/annals?host=/var/run/postgresql", "postgres:///var/run/postgresql/annals"),
            ("postgres:///annals?user=app&password=x", "postgres:///annals"),
            ("notes.db", "notes.db"),
            ("postgres.db", "postgres.db"),
        ] {
            assert_eq!(shown(Path::new(name)), text, "{name}");
            assert_eq!(url(Path::new(name)).is_some(), name.contains("://"), "{name}");
        }
    }
}
