//! A service of workflows with Tokio and axum: a request places an order, a worker in the same process runs it, and
//! another request confirms it. The tasks of the workflow await Tokio's timers and sockets, and the handlers call the
//! store through `unblock`, so that none holds up the others.
//!
//! Run it with `cargo run -p annals-graph --example service`. It sends the requests to itself and ends: the last ones
//! while another process holds the lock of the file for a second.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals_graph::Worker;
use annals_graph::annals::store::StoreError;
use annals_graph::graph::{Entry, Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::task::Task;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

type Orders = CompiledGraph<Entry<i64, String>>;
type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The state of the service: cheap to clone.
#[derive(Clone)]
struct Service {
    store: Store,
    orders: Orders,
    /// The notes that wait for the store.
    pending: Arc<AtomicUsize>,
}

/// The workflow of an order: it pays, waits until a person confirms, and ships.
fn orders(address: SocketAddr) -> Result<Orders> {
    let pay = Task::new("pay", move |cents: i64, ctx: Context| async move {
        // The key is the same in each attempt, so that the other side can refuse a second payment.
        let key = ctx.step_key();
        request(address, "POST", "/payments", &format!("{key} {cents}")).await
    })
    .retry(RetryPolicy::new().on_if(|_| true));
    let ship = Task::new("ship", |receipt: String, _: Context| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(format!("shipped for {receipt}"))
    });
    let order = Entrypoint::new("order", move |cents: i64, ctx: Context| {
        let (pay, ship) = (pay.clone(), ship.clone());
        async move {
            let receipt = pay.call(&ctx, cents).await?;
            ctx.interrupt("ship it?")?;
            ship.call(&ctx, receipt).await
        }
    });
    Ok(order.compile()?)
}

/// An error of a handler. Its status code follows the kind of the error.
struct Failure(annals_graph::Error);

impl<E: Into<annals_graph::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0.kind() {
            annals_graph::ErrorKind::NotFound => StatusCode::NOT_FOUND,
            annals_graph::ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            annals_graph::ErrorKind::Busy | annals_graph::ErrorKind::Conflict => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.0.to_string()).into_response()
    }
}

/// Places an order. A request that is repeated places no second one.
async fn place(State(service): State<Service>, Path(id): Path<String>, cents: String) -> Result<String, Failure> {
    let cents: i64 = cents.trim().parse().map_err(|_| StoreError::Invalid {
        field: "cents",
        reason: "the body of the request is not a whole number".into(),
    })?;
    let place = move |store: &Store| store.queue("order").dedup(&id).enqueue(&id, cents);
    let queued = service.store.unblock(place).await?;
    Ok(if queued.is_new { "placed".into() } else { "known".into() })
}

/// Confirms an order that waits for it.
async fn confirm(State(service): State<Service>, Path(id): Path<String>) -> Result<String, Failure> {
    let confirm = |thread: &Thread| {
        let Some(open) = thread.open_interrupts()?.into_iter().next() else { return Ok("nothing to confirm") };
        thread.resume_interrupt(&open.id, true)?;
        Ok::<_, StoreError>("confirmed")
    };
    Ok(service.store.thread(&id)?.unblock(confirm).await?.to_owned())
}

/// Waits until an order has ended or waits for a confirmation, and tells how it stands.
async fn status(State(service): State<Service>, Path(id): Path<String>) -> Result<String, Failure> {
    let thread = service.store.thread(&id)?;
    let info = thread.unblock(|thread| thread.wait_for_end(Duration::from_secs(3))).await?;
    let state = service.orders.aget_state(&thread).await?;
    let status = info.map_or("runs", |info| ThreadStatus::of(&info).as_str());
    Ok(format!("{status}: {}", state.values.value().map_or("", String::as_str)))
}

/// Adds a note to those of a customer, and returns their number.
async fn note(State(service): State<Service>, Path(customer): Path<String>, text: String) -> Result<String, Failure> {
    let thread = service.store.thread(format!("notes of {customer}"))?;
    service.pending.fetch_add(1, Ordering::SeqCst);
    let stored = thread.unblock(move |thread| thread.append("notes", [text])).await;
    service.pending.fetch_sub(1, Ordering::SeqCst);
    stored?;
    notes(State(service), Path(customer)).await
}

/// Returns the number of notes of a customer.
async fn notes(State(service): State<Service>, Path(customer): Path<String>) -> Result<String, Failure> {
    let thread = service.store.thread(format!("notes of {customer}"))?;
    let count = |thread: &Thread| thread.head()?.map_or(Ok(0), |head| head.len("notes"));
    let count = thread.unblock(count).await?;
    Ok(format!("{count} notes"))
}

/// Tells that the service is there. It does not call the store.
async fn health() -> &'static str {
    "well"
}

/// The payments of another company.
async fn payments(body: String) -> String {
    tokio::time::sleep(Duration::from_millis(20)).await;
    format!("receipt of {}", body.split(' ').next_back().unwrap_or_default())
}

/// Sends a request and returns the body of its response. A service would use an HTTP client.
async fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> std::result::Result<String, AnyError> {
    let mut socket = TcpStream::connect(address).await?;
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}", body.len());
    socket.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?;
    let mut response = String::new();
    socket.read_to_string(&mut response).await?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or("the response has no body")?;
    if head.starts_with("HTTP/1.1 200 ") { Ok(body.to_owned()) } else { Err(response.into()) }
}

/// Sends the requests of the users of the service.
async fn users(address: SocketAddr) -> std::result::Result<(), AnyError> {
    let send = async |method, path: &str, body| {
        let answer = request(address, method, path, body).await?;
        println!("{method:<4} {path:<26} {answer}");
        Ok::<_, AnyError>(answer)
    };
    assert_eq!(send("POST", "/orders/order-17", "4200").await?, "placed");
    assert_eq!(send("POST", "/orders/order-17", "4200").await?, "known");
    assert_eq!(send("GET", "/orders/order-17", "").await?, "interrupted: ");
    assert_eq!(send("POST", "/orders/order-17/confirm", "").await?, "confirmed");
    // The worker takes the confirmation; until then the order is the same.
    let mut ended = String::new();
    while !ended.starts_with("done") {
        ended = send("GET", "/orders/order-17", "").await?;
    }
    assert_eq!(ended, "done: shipped for receipt of 4200");
    Ok(())
}

/// The first argument of a process that holds the lock of a file.
const HOLD: &str = "hold-lock";

/// Holds the write lock of a store until the standard input ends.
fn hold_lock(path: &FilePath) -> Result<()> {
    Store::open(path)?.transaction(|_| {
        println!("held");
        _ = std::io::stdin().read_to_end(&mut Vec::new());
        Ok::<_, StoreError>(())
    })?;
    Ok(())
}

/// Starts a process that holds the write lock, and returns when it does.
fn lock_holder(path: &FilePath) -> std::result::Result<Child, AnyError> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut holder = command.arg(HOLD).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(holder.stdout.as_mut().ok_or("no output")?).read_line(&mut line)?;
    if line.trim() == "held" { Ok(holder) } else { Err(format!("no lock: {line}").into()) }
}

/// Sends 200 notes while another process holds the lock of the file for a second, and asks for other things meanwhile.
async fn crowd(address: SocketAddr, path: &FilePath, pending: &AtomicUsize) -> std::result::Result<(), AnyError> {
    const NOTES: usize = 200;
    let mut holder = lock_holder(path)?;
    let note = |n: usize| async move { request(address, "POST", &format!("/notes/customer-{n}"), "call back").await };
    let sent: Vec<_> = (0..NOTES).map(|n| tokio::spawn(note(n))).collect();
    let (mut slowest, mut slowest_read, mut answers) = (Duration::ZERO, Duration::ZERO, 0);
    let mut all_wait_since = None;
    while all_wait_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(1)) {
        let asked = Instant::now();
        assert_eq!(request(address, "GET", "/health", "").await?, "well");
        slowest = slowest.max(asked.elapsed());
        let asked = Instant::now();
        assert_eq!(request(address, "GET", "/notes/somebody", "").await?, "0 notes");
        slowest_read = slowest_read.max(asked.elapsed());
        answers += 1;
        if all_wait_since.is_none() && pending.load(Ordering::SeqCst) == NOTES {
            all_wait_since = Some(asked);
        }
    }
    assert_eq!(pending.load(Ordering::SeqCst), NOTES, "all of them wait for the lock");
    // Its input ends, and with it the transaction.
    drop(holder.stdin.take());
    holder.wait()?;
    for sent in sent {
        assert_eq!(sent.await??, "1 notes");
    }
    println!(
        "{NOTES} notes waited for the lock of another process; meanwhile {answers} requests to another route took \
         {slowest:?} at most, and {answers} reads of the store {slowest_read:?}"
    );
    Ok(())
}

async fn serve() -> std::result::Result<(), AnyError> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("orders.db");
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let store = Store::open(&path)?;
    let pending = Arc::<AtomicUsize>::default();
    let service = Service { store: store.clone(), orders: orders(address)?, pending: Arc::clone(&pending) };
    // The tasks of the worker run in this runtime, on threads of their own.
    let worker = Worker::new(&store).register(&service.orders).concurrency(8);
    let router = Router::new()
        .route("/orders/{id}", post(place).get(status))
        .route("/orders/{id}/confirm", post(confirm))
        .route("/notes/{customer}", post(note).get(notes))
        .route("/payments", post(payments))
        .route("/health", get(health))
        .with_state(service);
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    // A program with real users waits for a signal of the operating system in their place.
    let mut used = Ok(());
    let shutdown = async {
        used = match users(address).await {
            Ok(()) => crowd(address, &path, &pending).await,
            failed => failed,
        };
    };
    let report = worker.arun_until(shutdown).await?;
    used?;
    server.abort();
    println!("the worker has continued {} runs", report.continued);
    Ok(())
}

fn main() -> std::result::Result<(), AnyError> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(HOLD), Some(path)) = (arguments.next().as_deref(), arguments.next()) {
        return Ok(hold_lock(path.as_ref())?);
    }
    tokio::runtime::Runtime::new()?.block_on(serve())
}
