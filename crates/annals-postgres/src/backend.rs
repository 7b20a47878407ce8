//! The backend: the log of the engine in terms of statements.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::store::batch::Batch;
use annals::store::log::{
    Capabilities, CommitHandle, Erase, HeadParts, Log, LogSignal, NamespaceRef, RecordQuery, StateQuery, ThreadParts,
    ThreadRow, ThreadRows, TimerQuery, VisitState,
};
use annals::store::operation::{NewOperation, OperationQuery, OperationRecord};
use annals::store::record::{CheckpointRecord, StoredHead, TimerRecord, VersionRecord, WriteRecord};
use annals::store::{CheckpointRef, Erasure, StoreError};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::client::{PgClient, PgQuery, Together};
use crate::commit::writer::{GroupWriter, WriteJob};
use crate::error::open_error;
use crate::follow::Notifier;
use crate::read::{records, state, threads};
use crate::rows::Cells;
use crate::schema::NewTables;
use crate::session::Sessions;
use crate::url::ServerUrl;
use crate::{erase, schema, sql, tls};

/// A log on a PostgreSQL server. Clones of the store that [`open`](crate::open) returns share it.
///
/// # Example
/// ```no_run
/// use std::sync::Arc;
///
/// use annals::store::{OpenOptions, Store};
/// use annals_postgres::PostgresBackend;
///
/// # fn main() -> Result<(), annals::store::StoreError> {
/// let backend = Arc::new(PostgresBackend::connect("postgres://app@localhost/annals")?);
/// let store = Store::with_backend(backend.clone(), OpenOptions::new());
/// let before = backend.round_trips();
/// assert!(store.threads()?.is_empty());
/// assert!(backend.round_trips() > before);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PostgresBackend {
    /// Dropped first: the writer ends when it has written what waits.
    jobs: Option<UnboundedSender<WriteJob>>,
    ended: Mutex<std::sync::mpsc::Receiver<()>>,
    pub(crate) client: PgClient,
    pub(crate) signal: Arc<LogSignal>,
    notifier: Arc<Notifier>,
    listens: AtomicBool,
    /// The mark of the server in positions of followers.
    pub(crate) server: u32,
}

impl PostgresBackend {
    /// Connects to the database of a URL, and makes the tables of the store if there are none.
    ///
    /// # Errors
    /// [`StoreError::Open`], as [`open`](crate::open).
    pub fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(url, true)
    }

    /// Connects to the database of a URL; without `makes_tables` one that has no tables of the store is refused.
    ///
    /// # Errors
    /// [`StoreError::Open`], as [`open`](crate::open); [`StoreError::NotAStore`] of a database without tables.
    pub fn connect_with(url: &str, makes_tables: bool) -> Result<Self, StoreError> {
        Self::connect_and(url, if makes_tables { NewTables::Whole } else { NewTables::Refused })
    }

    /// Connects to the database of a URL, and does with one that has no tables what is said.
    pub(crate) fn connect_and(url: &str, new_tables: NewTables) -> Result<Self, StoreError> {
        let url = ServerUrl::of(url);
        let mut config: Config = url.url.parse().map_err(|error: tokio_postgres::Error| {
            open_error("postgres://", format!("the URL is not one of a PostgreSQL server: {error}"))
        })?;
        let shown = shown(&config);
        let tls = tls::connector(&mut config, &url).map_err(|reason| open_error(&shown, reason))?;
        let options = url.options.as_deref().or(config.get_options()).unwrap_or_default().to_owned();
        let sessions = Sessions::new(config, tls, &options).map_err(|reason| open_error(&shown, reason))?;
        let client = PgClient::start(sessions).map_err(|error| open_error(&shown, error.to_string()))?;
        let (lanes, of) = (Arc::clone(&client.lanes), shown.clone());
        let server = client.wait(async move { schema::prepare(&lanes, &of, new_tables).await })?;
        let signal = Arc::new(LogSignal::default());
        let notifier = Arc::new(Notifier::new());
        client.spawn(Arc::clone(&notifier).run(Arc::clone(&client.lanes)));
        let (jobs, waiting) = unbounded_channel();
        let writer = GroupWriter::new(Arc::clone(&client.lanes), Arc::clone(&signal), Arc::clone(&notifier));
        let (end, ended) = std::sync::mpsc::sync_channel(1);
        client.spawn(async move {
            writer.run(waiting).await;
            // The error of a receiver that is gone is dropped: the backend no longer waits for the end.
            _ = end.send(());
        });
        Ok(Self {
            jobs: Some(jobs),
            ended: Mutex::new(ended),
            client,
            signal,
            notifier,
            listens: AtomicBool::new(false),
            server,
        })
    }

    /// Returns how many times the backend has waited for the server so far: statements that are sent together are one
    /// round trip.
    pub fn round_trips(&self) -> u64 {
        self.client.round_trips()
    }

    /// Returns the bytes of the tables of the store and of their indexes.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    pub fn size_bytes(&self) -> Result<u64, StoreError> {
        let answers = self.client.scan(vec![PgQuery::new(sql::TABLE_BYTES, [])], Together::Apart)?;
        answers[0].first().map_or(Ok(0), |row| Cells::of(row).number())
    }

    /// Begins to listen to notifications of other processes, once. Behind a pooler none come.
    pub(crate) fn listen(&self) {
        if !self.client.lanes.sessions.is_pooled() && !self.listens.swap(true, Ordering::Relaxed) {
            let (notifier, lanes) = (Arc::clone(&self.notifier), Arc::clone(&self.client.lanes));
            self.client.spawn(notifier.listen(lanes, Arc::clone(&self.signal)));
        }
    }

    /// Commits a batch if its thread is at a number of changes.
    pub(crate) fn commit_at(&self, batch: Batch, change: Option<i64>) -> Result<(), StoreError> {
        batch.validate()?;
        let (handle, settler) = CommitHandle::open_remote();
        self.hand_over(WriteJob::Batch(Box::new(batch), change, settler));
        handle.wait()
    }

    fn hand_over(&self, job: WriteJob) {
        // A job that is not taken settles itself: its outcome is unknown.
        if let Some(jobs) = &self.jobs {
            _ = jobs.send(job);
        }
    }
}

/// Returns the server and the database of a URL, without the password.
fn shown(config: &Config) -> String {
    let host = config.get_hosts().first().map_or("localhost".to_owned(), |host| match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    });
    format!("postgres://{host}/{}", config.get_dbname().unwrap_or_default())
}

impl Drop for PostgresBackend {
    fn drop(&mut self) {
        self.jobs.take();
        // The writer ends by itself when nothing waits any more.
        _ = self.ended.lock().recv();
    }
}

impl Log for PostgresBackend {
    fn submit(&self, batch: Batch) -> CommitHandle {
        if let Err(error) = batch.validate() {
            return CommitHandle::settled(batch.write_in_chain(|| Err(error)));
        }
        let (handle, settler) = CommitHandle::open_remote();
        self.hand_over(WriteJob::Batch(Box::new(batch), None, settler));
        handle
    }

    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError> {
        operation.validate()?;
        let (done, number) = std::sync::mpsc::sync_channel(1);
        self.hand_over(WriteJob::Operation(Box::new(operation.clone()), done));
        let ended = || StoreError::OutcomeUnknown { reason: "the writer ended".into() };
        number.recv().unwrap_or_else(|_| Err(ended()))
    }

    fn heads(&self, of: &[NamespaceRef<'_>], parts: HeadParts) -> Result<Vec<Option<StoredHead>>, StoreError> {
        records::heads(self, of, parts)
    }

    fn records(&self, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        records::records(self, query)
    }

    fn read(&self, at: &CheckpointRef, query: &StateQuery<'_>, visit: VisitState<'_>) -> Result<(), StoreError> {
        state::read(self, at, query, visit)
    }

    fn versions(
        &self,
        at: &CheckpointRef,
        channel: Option<&str>,
        down_to: u64,
        visit: &mut dyn FnMut(&VersionRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        state::versions(self, (at, channel, down_to), visit)
    }

    fn writes_of(&self, at: &[&CheckpointRef], bytes: usize) -> Result<Vec<Vec<WriteRecord>>, StoreError> {
        records::writes_of(self, at, bytes)
    }

    fn thread_rows(&self, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Result<Vec<ThreadRow>, StoreError> {
        threads::rows(self, of, parts)
    }

    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError> {
        records::operations(self, query)
    }

    fn timer_rows(&self, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError> {
        records::timers(self, query)
    }

    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError> {
        erase::erase(self, what)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let mut parts = Capabilities::NONE;
        parts.follow = Some(self);
        parts.queues = Some(self);
        parts.searches = Some(self);
        parts.prunes = Some(self);
        parts.checks = Some(self);
        parts.side_tables = Some(self);
        parts
    }
}
