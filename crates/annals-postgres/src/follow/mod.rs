//! Followers of the log, and the notifications that wake them.
//!
//! A position is the number of a transaction and a `seq`. Only what comes before the oldest transaction that has not
//! ended is shown: a later commit never has an earlier position. Each process notifies the others, outside its commits
//! and at most every ten milliseconds, because a notification inside a commit lets the others wait for its disk. A
//! follower that misses one looks at the log after a second.

mod sql;

use std::sync::Arc;

use annals::base::{IdSource, ThreadId};
use annals::store::StoreError;
use annals::store::backend::LogProbe;
use annals::store::log::{ChangePage, Follow, LogPosition, LogSignal, LogWatch};
use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use self::sql as follow_sql;
use crate::PostgresBackend;
use crate::client::{Connections, Param, PgQuery, Together, pipeline};
use crate::error::{PgFault, corrupt};
use crate::limits::{NOTIFY_INTERVAL, RECONNECT_PAUSE, RESTORE_OVERLAP_MICROS, WATCH_PAUSE};
use crate::rows::{Cells, record};
use crate::sql as common_sql;

/// A transaction, a `seq`, and the mark of the server.
const POSITION_BYTES: usize = 20;

/// Reads a position: the number of a transaction, and a `seq`. One of another server, from which the tables were
/// restored, is a little before its `seq`: the numbers of the transactions were lost.
fn parts(position: &LogPosition, server: u32) -> Result<(u64, i64), StoreError> {
    let bytes = position.as_bytes();
    if bytes.is_empty() {
        return Ok((0, i64::MIN));
    }
    let foreign = || StoreError::Invalid { field: "position", reason: "it is of another store".into() };
    let bytes: [u8; POSITION_BYTES] = bytes.try_into().map_err(|_| foreign())?;
    let (number, of) = bytes.split_at(16);
    let number = u128::from_be_bytes(number.try_into().map_err(|_| foreign())?);
    let (xact, seq) = ((number >> 64) as u64, (number as u64).cast_signed());
    if of == server.to_be_bytes() { Ok((xact, seq)) } else { Ok((0, seq.saturating_sub(RESTORE_OVERLAP_MICROS))) }
}

fn position(xact: &str, seq: i64, server: u32) -> Result<LogPosition, StoreError> {
    let xact: u64 = xact.parse().map_err(|_| corrupt("checkpoint.xact", "it is not a number"))?;
    let number = (u128::from(xact) << 64) | u128::from(seq.cast_unsigned());
    let mut bytes = [0; POSITION_BYTES];
    bytes[..16].copy_from_slice(&number.to_be_bytes());
    bytes[16..].copy_from_slice(&server.to_be_bytes());
    LogPosition::from_bytes(&bytes)
}

impl Follow for PostgresBackend {
    fn changes_after(
        &self,
        after: &LogPosition,
        thread: Option<&ThreadId>,
        limit: usize,
    ) -> Result<ChangePage, StoreError> {
        let (xact, seq) = parts(after, self.server)?;
        let params = [
            Param::Text(Some(xact.to_string())),
            Param::Int(Some(seq)),
            Param::Text(thread.map(|thread| thread.as_str().to_owned())),
            Param::Int(Some(i64::try_from(limit).unwrap_or(i64::MAX))),
        ];
        let rows = self.client.scan(vec![PgQuery::new(follow_sql::CHANGES, params)], Together::Apart)?.remove(0);
        let (mut records, mut last) = (Vec::new(), *after);
        for row in &rows {
            let mut cells = Cells::of(row);
            let xact = cells.next::<String>()?;
            let of = record(&mut cells)?.record;
            last = position(&xact, of.seq.cast_signed(), self.server)?;
            records.push((last, of));
        }
        Ok(ChangePage::new(records, last))
    }

    fn position(&self, newest: u64) -> Result<LogPosition, StoreError> {
        let offset = Param::Int(Some(i64::try_from(newest).unwrap_or(i64::MAX)));
        let rows = self.client.read(vec![PgQuery::new(follow_sql::POSITION, [offset])], Together::Apart)?.remove(0);
        let Some(row) = rows.first() else { return Ok(LogPosition::START) };
        let mut cells = Cells::of(row);
        position(cells.next()?, cells.next()?, self.server)
    }

    fn watch(&self) -> Result<LogWatch, StoreError> {
        self.listen();
        let mut probe =
            NewestProbe { lanes: Arc::clone(&self.client.lanes), client: self.client.remote(), newest: None };
        probe.has_changed()?;
        Ok(LogWatch::new(Arc::clone(&self.signal), Some(Box::new(probe))).every(WATCH_PAUSE))
    }
}

/// Looks whether there is a newer checkpoint.
#[derive(Debug)]
struct NewestProbe {
    lanes: Arc<Connections>,
    client: crate::client::RemoteClient,
    newest: Option<(String, i64)>,
}

impl LogProbe for NewestProbe {
    fn has_changed(&mut self) -> Result<bool, StoreError> {
        let lanes = Arc::clone(&self.lanes);
        let rows = self.client.wait(async move {
            let query = [PgQuery::new(follow_sql::NEWEST, [])];
            lanes.read(&query, Together::Apart).await.map_err(crate::error::read_error)
        })?;
        let newest = rows[0].first().map(|row| {
            let mut cells = Cells::of(row);
            Ok::<_, StoreError>((cells.next::<String>()?, cells.next::<i64>()?))
        });
        let newest = newest.transpose()?;
        let has_changed = newest != self.newest;
        self.newest = newest;
        Ok(has_changed)
    }
}

/// Notifies the other processes of commits.
#[derive(Debug)]
pub(crate) struct Notifier {
    pub(crate) committed: Notify,
    /// Tells the notifications of this process from those of others.
    name: String,
}

impl Notifier {
    pub(crate) fn new() -> Self {
        Self { committed: Notify::new(), name: format!("{:016x}", IdSource::new().random()) }
    }

    /// Sends notifications, at most one in an interval. A process that is not reached looks by itself.
    pub(crate) async fn run(self: Arc<Self>, lanes: Arc<Connections>) {
        loop {
            self.committed.notified().await;
            tokio::time::sleep(NOTIFY_INTERVAL).await;
            let Ok(of) = lanes.reader().await else { continue };
            let notify = [PgQuery::new(follow_sql::NOTIFY, [Param::Text(Some(self.name.clone()))])];
            // The error is dropped: the other processes look by themselves.
            _ = pipeline(&of, &notify, Together::Apart).await;
        }
    }

    /// Listens to the notifications of other processes, and wakes the followers of this one. Behind a pooler it ends.
    pub(crate) async fn listen(self: Arc<Self>, lanes: Arc<Connections>, signal: Arc<LogSignal>) {
        loop {
            // An error ends the connection; what came meanwhile is found by a look.
            _ = self.listen_once(&lanes, &signal).await;
            signal.notify();
            if lanes.sessions.is_pooled() {
                return;
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    async fn listen_once(&self, lanes: &Connections, signal: &LogSignal) -> Result<(), PgFault> {
        let (client, mut connection) = lanes.sessions.connect(common_sql::PLAN_AS_WRITTEN).await?;
        let mut begin = Box::pin(async {
            lanes.sessions.verify(&client).await?;
            if lanes.sessions.is_pooled() {
                return Ok(None);
            }
            client.batch_execute(follow_sql::LISTEN).await?;
            Ok::<_, PgFault>(Some(client.query_typed(follow_sql::SCHEMA, &[]).await?[0].try_get::<_, String>(0)?))
        });
        let mut schema = None;
        std::future::poll_fn(|context| {
            loop {
                if schema.is_none()
                    && let std::task::Poll::Ready(read) = begin.as_mut().poll(context)
                {
                    match read {
                        Ok(Some(read)) => schema = Some(read),
                        Ok(None) => return std::task::Poll::Ready(Ok(())),
                        Err(fault) => return std::task::Poll::Ready(Err(fault)),
                    }
                }
                match std::task::ready!(connection.poll_message(context)) {
                    Some(Ok(AsyncMessage::Notification(of))) => {
                        let is_own = of.payload().ends_with(&self.name);
                        let is_here =
                            schema.as_ref().is_some_and(|schema| of.payload().starts_with(&format!("{schema} ")));
                        if is_here && !is_own {
                            signal.notify();
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return std::task::Poll::Ready(Err(error.into())),
                    None => return std::task::Poll::Ready(Ok(())),
                }
            }
        })
        .await
    }
}
