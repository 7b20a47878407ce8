//! The settings of a session, and whether a pooler stands before the server.
//!
//! A connection gets its settings by the startup packet. A pooler lends a connection of the server to each transaction,
//! and refuses such settings or drops them. A mark among them tells: only a session of one's own shows it. Behind a
//! pooler each transaction begins with the settings, which end with it, and statements are sent without names: one that
//! another client has prepared could have the same name.
//!
//! Invariant: no statement changes a session. *Absent:* notifications behind a pooler.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::base::IdSource;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};

use crate::client::PgConnection;
use crate::error::PgFault;
use crate::sql::{self, PgSetting};
use crate::tls::TlsConnector;

/// The half of a connection that sends and receives.
pub(crate) type ServerConnection = Connection<Socket, <TlsConnector as MakeTlsConnect<Socket>>::Stream>;

/// How connections are opened.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// Without options.
    config: Config,
    tls: TlsConnector,
    /// The settings that the URL states.
    own: Vec<(String, String)>,
    /// The value of the setting that only sessions of this process have.
    mark: String,
    /// The search path that transactions behind a pooler begin with: that of the first one.
    search_path: OnceLock<String>,
    is_pooled: AtomicBool,
}

/// How transactions begin behind a pooler.
#[derive(Debug)]
pub(crate) struct PooledBegin {
    pub(crate) plain: String,
    pub(crate) snapshot: String,
}

impl Sessions {
    /// Returns how connections are opened with the options of a URL; an error names an option that is not a setting.
    pub(crate) fn new(config: Config, tls: TlsConnector, options: &str) -> Result<Self, String> {
        let (own, mark) = (settings(options)?, format!("{:016x}", IdSource::new().random()));
        Ok(Self { config, tls, own, mark, search_path: OnceLock::new(), is_pooled: AtomicBool::new(false) })
    }

    /// Returns whether a pooler was found.
    pub(crate) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Ordering::Relaxed)
    }

    /// Notes that a pooler was found.
    pub(crate) fn note_pooler(&self) {
        self.is_pooled.store(true, Ordering::Relaxed);
    }

    /// Returns the settings of a session: those of the URL, and how the server plans.
    fn all<'s>(&'s self, plan: &'static [PgSetting]) -> impl Iterator<Item = (&'s str, &'s str)> {
        self.own.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(plan.iter().copied())
    }

    /// Opens a connection whose other half the caller drives. Behind a pooler it has no settings.
    #[allow(clippy::clone_on_copy, reason = "the connector is `Copy` without TLS alone")]
    pub(crate) async fn connect(&self, plan: &'static [PgSetting]) -> Result<(Client, ServerConnection), PgFault> {
        if !self.is_pooled() {
            let mut config = self.config.clone();
            config.options(options(self.all(plan).chain([(sql::MARK, self.mark.as_str())])));
            match config.connect(self.tls.clone()).await.map_err(PgFault::from) {
                Err(fault) if fault.may_refuse_options() => {}
                outcome => return outcome,
            }
        }
        let opened = self.config.connect(self.tls.clone()).await?;
        self.note_pooler();
        Ok(opened)
    }

    /// Opens a connection with settings.
    pub(crate) async fn open(&self, plan: &'static [PgSetting]) -> Result<PgConnection, PgFault> {
        let (client, connection) = self.connect(plan).await?;
        tokio::spawn(async move {
            // The calls on the connection get its error.
            _ = connection.await;
        });
        self.verify(&client).await?;
        let pooled = self.is_pooled().then(|| self.begin(plan));
        Ok(PgConnection::new(client, pooled))
    }

    /// Notes a pooler if a connection lacks the mark.
    pub(crate) async fn verify(&self, client: &Client) -> Result<(), PgFault> {
        if self.is_pooled() && self.search_path.get().is_some() {
            return Ok(());
        }
        let row = client.query_typed(sql::SESSION, &[]).await?.remove(0);
        if row.try_get::<_, Option<&str>>(0)? != Some(&self.mark) {
            self.note_pooler();
        }
        let path = row.try_get(1)?;
        self.search_path.get_or_init(|| path);
        Ok(())
    }

    fn begin(&self, plan: &'static [PgSetting]) -> PooledBegin {
        // A setting of the URL comes later, and decides.
        let path = self.search_path.get().map(|path| (sql::SEARCH_PATH, path.as_str()));
        let with = |begin| sql::begin_with(begin, path.into_iter().chain(self.all(plan)));
        PooledBegin { plain: with(sql::BEGIN), snapshot: with(sql::BEGIN_SNAPSHOT) }
    }
}

/// Returns the options of a startup packet.
fn options<'s>(settings: impl Iterator<Item = (&'s str, &'s str)>) -> String {
    let mut options = String::new();
    for (name, value) in settings {
        options += if options.is_empty() { "-c" } else { " -c" };
        for char in name.chars().chain(['=']).chain(value.chars()) {
            if char.is_ascii_whitespace() || char == '\\' {
                options.push('\\');
            }
            options.push(char);
        }
    }
    options
}

/// Reads options: `-c name=value` and `--name=value`, where a backslash stands before a space.
fn settings(options: &str) -> Result<Vec<(String, String)>, String> {
    let mut words: Vec<String> = Vec::new();
    let (mut is_inside, mut chars) = (false, options.chars());
    while let Some(char) = chars.next() {
        if char.is_ascii_whitespace() {
            is_inside = false;
            continue;
        }
        if !std::mem::replace(&mut is_inside, true) {
            words.push(String::new());
        }
        let char = if char == '\\' { chars.next().unwrap_or(char) } else { char };
        words.last_mut().into_iter().for_each(|word| word.push(char));
    }
    let (mut settings, mut words) = (Vec::new(), words.into_iter());
    while let Some(word) = words.next() {
        let stated = match word.strip_prefix("--") {
            Some(stated) => Some(stated.to_owned()),
            None if word == "-c" => words.next(),
            None => word.strip_prefix("-c").map(ToOwned::to_owned),
        };
        let unknown = || format!("the option {word:?} of the URL is not a setting, as in `-c name=value`");
        let (name, value) = stated.as_deref().and_then(|stated| stated.split_once('=')).ok_or_else(unknown)?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_written_alike() {
        let read = settings(r"-c search_path=a,\ b  -cjit=off --statement-timeout=5s -c x.y=\\=").unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected =
            [pair("search_path", "a, b"), pair("jit", "off"), pair("statement_timeout", "5s"), pair("x.y", "\\=")];
        assert_eq!(read, expected);
        let written = options(read.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        assert_eq!(written, r"-csearch_path=a,\ b -cjit=off -cstatement_timeout=5s -cx.y=\\=");
        assert_eq!(settings(&written), Ok(read));
        for unknown in ["-e", "-c", "-c jit", "jit=off", "-B 100"] {
            assert!(settings(unknown).unwrap_err().contains("is not a setting"), "{unknown}");
        }
    }
}
