//! The client of the server: a thread with a runtime of its own, a few connections, and statements that are pipelined.
//!
//! A call from any thread, inside another runtime or not, parks until its statements are done. The statements of a call
//! are sent together: a round trip, which is counted. The server prepares each statement once on a connection, unless
//! there is a pooler between. A connection that is lost is opened again; a read is repeated some times.
//!
//! Invariant: the statements of a transaction stand on their connection without others between them. *Absent:* the
//! statements.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use annals::store::StoreError;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use crate::error::{PgFault, read_error};
use crate::limits::{ATTEMPTS_MAX, BACKOFF_FIRST, PLANS_KEPT_MIN, READ_CONNECTIONS, WRITE_CONNECTIONS};
use crate::session::{PooledBegin, Sessions};
use crate::sql::{self, PgSetting};

/// A parameter of a statement, with the type that the statement states for it.
#[derive(Clone, Debug)]
pub(crate) enum Param {
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
    Blobs(Vec<Option<Vec<u8>>>),
    Bools(Vec<Option<bool>>),
}

impl Param {
    fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Int(value) => (value, Type::INT8),
            Self::Text(value) => (value, Type::TEXT),
            Self::Bytes(value) => (value, Type::BYTEA),
            Self::Ints(values) => (values, Type::INT8_ARRAY),
            Self::Texts(values) => (values, Type::TEXT_ARRAY),
            Self::Blobs(values) => (values, Type::BYTEA_ARRAY),
            Self::Bools(values) => (values, Type::BOOL_ARRAY),
        }
    }
}

/// A statement with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct PgQuery {
    pub(crate) sql: &'static str,
    pub(crate) params: Vec<Param>,
}

impl PgQuery {
    pub(crate) fn new(sql: &'static str, params: impl Into<Vec<Param>>) -> Self {
        Self { sql, params: params.into() }
    }
}

/// How the statements of a call belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Each has a snapshot of its own.
    Apart,
    /// All read one snapshot.
    Snapshot,
    /// All are written, or none.
    Transaction,
    /// They belong to the open transaction of their connection.
    Open,
}

/// The rows of each statement of a call.
pub(crate) type Answers = Vec<Vec<Row>>;

/// A connection that is opened when it is needed first, and anew when it was lost.
#[derive(Debug)]
struct Lane {
    open: Mutex<Option<Arc<PgConnection>>>,
    /// How the server plans.
    plan: &'static [PgSetting],
    /// The calls on it that have not ended.
    calls: AtomicUsize,
}

impl Lane {
    fn with(plan: &'static [PgSetting]) -> Self {
        Self { open: Mutex::default(), plan, calls: AtomicUsize::new(0) }
    }

    fn enter(&self) -> LaneCall<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        LaneCall(self)
    }
}

/// Drop guard: a call on a lane has ended.
struct LaneCall<'l>(&'l Lane);

impl Drop for LaneCall<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection, and the statements that the server has prepared on it.
pub(crate) struct PgConnection {
    pub(crate) client: Client,
    prepared: parking_lot::Mutex<HashMap<&'static str, Statement>>,
    /// The calls so far.
    calls: AtomicU64,
    /// How transactions begin if there is a pooler, which also means that statements are sent without names.
    pooled: Option<PooledBegin>,
}

impl std::fmt::Debug for PgConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PgConnection").field("pooled", &self.pooled).finish_non_exhaustive()
    }
}

impl PgConnection {
    pub(crate) fn new(client: Client, pooled: Option<PooledBegin>) -> Self {
        Self { client, prepared: parking_lot::Mutex::default(), calls: AtomicU64::new(0), pooled }
    }

    /// Returns the statement that begins a transaction.
    fn begins(&self, is_snapshot: bool) -> &str {
        match (&self.pooled, is_snapshot) {
            (None, false) => sql::BEGIN,
            (None, true) => sql::BEGIN_SNAPSHOT,
            (Some(pooled), false) => &pooled.plain,
            (Some(pooled), true) => &pooled.snapshot,
        }
    }

    /// Returns whether the server should drop its plans before the next call, and counts it. The plan of a statement is
    /// made once, and that of an empty table passes over indexes; so plans are made anew when the calls have doubled.
    fn drops_plans(&self) -> bool {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        self.pooled.is_none() && calls >= PLANS_KEPT_MIN && calls.is_power_of_two()
    }

    /// Begins a transaction, whose statements are [`Together::Open`].
    pub(crate) async fn begin(&self) -> Result<(), PgFault> {
        Ok(self.client.batch_execute(self.begins(false)).await?)
    }

    /// Lets the server prepare the statements that it has not yet, in one round trip. Returns whether there were any.
    async fn prepare(&self, queries: &[PgQuery]) -> Result<bool, PgFault> {
        if self.pooled.is_some() {
            return Ok(false);
        }
        let mut missing: Vec<&PgQuery> = Vec::new();
        for query in queries {
            let is_known = self.prepared.lock().contains_key(query.sql);
            if !is_known && missing.iter().all(|other| other.sql != query.sql) {
                missing.push(query);
            }
        }
        let steps = missing.iter().map(|query| {
            let types: Vec<Type> = query.params.iter().map(|param| param.typed().1).collect();
            Box::pin(async move { self.client.prepare_typed(query.sql, &types).await }) as PipelineStep<'_, Statement>
        });
        let prepared = all(steps.collect()).await?;
        self.prepared.lock().extend(missing.iter().map(|query| query.sql).zip(prepared));
        Ok(!missing.is_empty())
    }
}

/// The connections, as the tasks of the runtime use them.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) sessions: Sessions,
    /// For commits: each carries one group at a time.
    writes: Vec<Lane>,
    /// For the tables beside the log.
    beside: Lane,
    /// For reads by keys: a call takes the connection with the fewest calls, so that one caller needs one connection.
    reads: [Lane; READ_CONNECTIONS],
    /// For reads of which the plan follows from the parameters and the size of the tables: listings, searches, sums.
    scans: Lane,
    round_trips: AtomicU64,
}

impl Connections {
    async fn client(&self, lane: &Lane) -> Result<Arc<PgConnection>, PgFault> {
        let mut open = lane.open.lock().await;
        let is_pooled = self.sessions.is_pooled();
        if let Some(of) = open.as_ref().filter(|of| !of.client.is_closed() && of.pooled.is_some() == is_pooled) {
            return Ok(Arc::clone(of));
        }
        let of = Arc::new(self.sessions.open(lane.plan).await?);
        *open = Some(Arc::clone(&of));
        Ok(of)
    }

    /// Opens a connection for statements that are not those of commits.
    pub(crate) async fn open(&self) -> Result<PgConnection, PgFault> {
        self.sessions.open(sql::PLAN_AS_WRITTEN).await
    }

    /// Runs statements on a connection. If they show a pooler that has passed the mark on, it is noted.
    pub(crate) async fn run(
        &self,
        of: &PgConnection,
        queries: &[PgQuery],
        together: Together,
    ) -> Result<Answers, PgFault> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let answers = match of.prepare(queries).await {
            Ok(had_to) => {
                self.round_trips.fetch_add(had_to.into(), Ordering::Relaxed);
                pipeline(of, queries, together).await
            }
            Err(fault) => Err(fault),
        };
        answers.inspect_err(|fault| {
            if fault.is_of_pooler() {
                self.sessions.note_pooler();
            }
        })
    }

    /// Runs statements on a connection of the writer, once.
    pub(crate) async fn write(&self, lane: usize, queries: &[PgQuery]) -> Result<Answers, PgFault> {
        let of = self.client(&self.writes[lane]).await?;
        self.run(&of, queries, Together::Transaction).await
    }

    /// Runs statements on the tables beside the log, in one transaction.
    pub(crate) async fn write_beside(&self, queries: &[PgQuery]) -> Result<Answers, PgFault> {
        let of = self.client(&self.beside).await?;
        self.run(&of, queries, Together::Transaction).await
    }

    /// Runs statements beside the writer in one transaction, and again if it fails for a reason that passes.
    pub(crate) async fn write_repeated(&self, queries: &[PgQuery]) -> Result<Answers, PgFault> {
        let mut backoff = BACKOFF_FIRST;
        for _ in 1..ATTEMPTS_MAX {
            match self.write_beside(queries).await {
                Err(fault) if fault.passes() => back_off(&mut backoff).await,
                answers => return answers,
            }
        }
        self.write_beside(queries).await
    }

    /// Begins a transaction on a connection of the writer. It ends with [`Connections::commit_on`] or
    /// [`Connections::roll_back`] on the same connection.
    pub(crate) async fn begin_write(
        &self,
        lane: usize,
        queries: &[PgQuery],
    ) -> Result<(Arc<PgConnection>, Answers), PgFault> {
        let of = self.client(&self.writes[lane]).await?;
        of.begin().await?;
        match self.run(&of, queries, Together::Open).await {
            Ok(answers) => Ok((of, answers)),
            Err(fault) => {
                self.roll_back(&of).await;
                Err(fault)
            }
        }
    }

    /// Runs statements in an open transaction, and commits it.
    pub(crate) async fn commit_on(&self, of: &PgConnection, queries: &[PgQuery]) -> Result<Answers, PgFault> {
        let answers = self.run(of, queries, Together::Open).await?;
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        of.client.batch_execute(sql::COMMIT).await?;
        Ok(answers)
    }

    /// Ends an open transaction without a change. If that fails, the connection is lost, and the transaction with it.
    pub(crate) async fn roll_back(&self, of: &PgConnection) {
        _ = of.client.batch_execute(sql::ROLLBACK).await;
    }

    fn read_lane(&self) -> &Lane {
        let lanes = self.reads.iter();
        lanes.min_by_key(|lane| lane.calls.load(Ordering::Relaxed)).unwrap_or(&self.reads[0])
    }

    /// Returns a connection for reads.
    pub(crate) async fn reader(&self) -> Result<Arc<PgConnection>, PgFault> {
        self.client(self.read_lane()).await
    }

    /// Reads by keys. A call that fails for a reason that passes is repeated.
    pub(crate) async fn read(&self, queries: &[PgQuery], together: Together) -> Result<Answers, PgFault> {
        self.read_on(Self::read_lane, queries, together).await
    }

    /// Reads by statements that are planned for their parameters; as [`Connections::read`].
    async fn scan(&self, queries: &[PgQuery], together: Together) -> Result<Answers, PgFault> {
        self.read_on(|lanes| &lanes.scans, queries, together).await
    }

    async fn read_on(
        &self,
        lane: fn(&Self) -> &Lane,
        queries: &[PgQuery],
        together: Together,
    ) -> Result<Answers, PgFault> {
        let mut backoff = BACKOFF_FIRST;
        for attempt in 1.. {
            let call = lane(self).enter();
            let answers = match self.client(call.0).await {
                Ok(of) => self.run(&of, queries, together).await,
                Err(fault) => Err(fault),
            };
            match answers {
                Err(fault) if attempt < ATTEMPTS_MAX && fault.passes() => back_off(&mut backoff).await,
                answers => return answers,
            }
        }
        unreachable!("the last attempt returns")
    }
}

/// Waits before another attempt, each time twice as long.
pub(crate) async fn back_off(backoff: &mut Duration) {
    tokio::time::sleep(*backoff).await;
    *backoff *= 2;
}

type PipelineStep<'q, T> = Pin<Box<dyn Future<Output = Result<T, tokio_postgres::Error>> + Send + 'q>>;

fn command<'q>(client: &'q Client, sql: &'q str) -> PipelineStep<'q, Vec<Row>> {
    Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) })
}

fn statement<'q>(of: &'q PgConnection, query: &'q PgQuery) -> PipelineStep<'q, Vec<Row>> {
    let prepared = of.prepared.lock().get(query.sql).cloned();
    Box::pin(async move {
        let params: Vec<_> = query.params.iter().map(Param::typed).collect();
        match prepared {
            Some(prepared) => {
                let params: Vec<_> = params.into_iter().map(|(param, _)| param).collect();
                of.client.query(&prepared, &params).await
            }
            None => of.client.query_typed(query.sql, &params).await,
        }
    })
}

/// Waits for all steps. The first poll of each sends it, so they are sent in their order.
async fn all<T>(mut steps: Vec<PipelineStep<'_, T>>) -> Result<Vec<T>, tokio_postgres::Error> {
    let mut results: Vec<_> = steps.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (step, result) in steps.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            match step.as_mut().poll(context) {
                Poll::Ready(of_step) => *result = Some(of_step),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// Sends statements one after another, and waits for all of them.
pub(crate) async fn pipeline(of: &PgConnection, queries: &[PgQuery], together: Together) -> Result<Answers, PgFault> {
    let begin = match together {
        Together::Open => None,
        // Behind a pooler a transaction has the settings.
        Together::Apart => of.pooled.as_ref().map(|_| of.begins(false)),
        Together::Snapshot if queries.len() == 1 => of.pooled.as_ref().map(|_| of.begins(false)),
        Together::Snapshot => Some(of.begins(true)),
        Together::Transaction => Some(of.begins(false)),
    };
    let before: Vec<&str> = of.drops_plans().then_some(sql::DROP_PLANS).into_iter().chain(begin).collect();
    let mut steps: Vec<PipelineStep<'_, Vec<Row>>> = before.iter().map(|sql| command(&of.client, sql)).collect();
    steps.extend(queries.iter().map(|query| statement(of, query)));
    steps.extend(begin.map(|_| command(&of.client, sql::COMMIT)));
    let mut answers = all(steps).await?;
    answers.drain(..before.len());
    answers.truncate(queries.len());
    Ok(answers)
}

/// An access to the thread of a client. After its end every call fails.
#[derive(Clone, Debug)]
pub(crate) struct RemoteClient(Handle);

impl RemoteClient {
    /// Runs a future on the thread of the client, and parks until it is done.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (done, result) = mpsc::sync_channel(1);
        self.0.spawn(async move { _ = done.send(future.await) });
        let ended = || StoreError::Read { reason: "the thread of the client ended".into(), source: None };
        result.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// The thread of the client. It ends when the client is dropped.
#[derive(Debug)]
pub(crate) struct PgClient {
    pub(crate) lanes: Arc<Connections>,
    remote: RemoteClient,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl PgClient {
    /// Starts the thread. No connection is opened yet.
    pub(crate) fn start(sessions: Sessions) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel());
        let thread = std::thread::Builder::new().name("annals-postgres".into()).spawn(move || {
            // An error says that the client was dropped.
            _ = runtime.block_on(stopped);
        })?;
        let lanes = Connections {
            sessions,
            writes: (0..WRITE_CONNECTIONS).map(|_| Lane::with(sql::PLAN_ONCE)).collect(),
            beside: Lane::with(sql::PLAN_AS_WRITTEN),
            reads: std::array::from_fn(|_| Lane::with(sql::PLAN_ONCE)),
            scans: Lane::with(sql::PLAN_AS_WRITTEN),
            round_trips: AtomicU64::new(0),
        };
        Ok(Self { lanes: Arc::new(lanes), remote: RemoteClient(handle), stop: Some(stop), thread: Some(thread) })
    }

    /// Returns an access to the thread that may outlive the client.
    pub(crate) fn remote(&self) -> RemoteClient {
        self.remote.clone()
    }

    /// Runs a task on the thread of the client.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.remote.0.spawn(task);
    }

    /// Runs a future on the thread of the client, and parks until it is done.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.remote.wait(future)
    }

    /// Reads by keys, and parks until the rows are there.
    pub(crate) fn read(&self, queries: Vec<PgQuery>, together: Together) -> Result<Answers, StoreError> {
        let lanes = Arc::clone(&self.lanes);
        self.wait(async move { lanes.read(&queries, together).await.map_err(read_error) })
    }

    /// Reads by statements that are planned for their parameters, and parks until the rows are there.
    pub(crate) fn scan(&self, queries: Vec<PgQuery>, together: Together) -> Result<Answers, StoreError> {
        let lanes = Arc::clone(&self.lanes);
        self.wait(async move { lanes.scan(&queries, together).await.map_err(read_error) })
    }

    /// Returns how many times the client has waited for the server.
    pub(crate) fn round_trips(&self) -> u64 {
        self.lanes.round_trips.load(Ordering::Relaxed)
    }
}

impl Drop for PgClient {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id()) {
            _ = thread.join();
        }
    }
}
