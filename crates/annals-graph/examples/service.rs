//! A service of workflows with Tokio and axum: a request places an order, a worker in the same process runs it, and
//! another request confirms it. The tasks of the workflow await Tokio's timers and sockets.
//!
//! Run it with `cargo run -p annals-graph --example service`. It sends the requests to itself and ends.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::net::SocketAddr;
use std::time::Duration;

use annals_graph::Worker;
use annals_graph::annals::store::StoreError;
use annals_graph::graph::{Entry, Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Orders = CompiledGraph<Entry<i64, String>>;
type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The state of the service: cheap to clone.
#[derive(Clone)]
struct Service {
    store: Store,
    orders: Orders,
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

/// Calls the store beside the threads of the runtime: a call waits for the disk, and for the lock of the file.
async fn beside<T: Send + 'static>(call: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result.map_err(Failure),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Places an order. A request that is repeated places no second one.
async fn place(State(service): State<Service>, Path(id): Path<String>, cents: String) -> Result<String, Failure> {
    let cents: i64 = cents.trim().parse().map_err(|_| StoreError::Invalid {
        field: "cents",
        reason: "the body of the request is not a whole number".into(),
    })?;
    let queued = beside(move || Ok(service.store.queue("order").dedup(&id).enqueue(&id, cents)?)).await?;
    Ok(if queued.is_new() { "placed".into() } else { "known".into() })
}

/// Confirms an order that waits for it.
async fn confirm(State(service): State<Service>, Path(id): Path<String>) -> Result<String, Failure> {
    beside(move || {
        let thread = service.store.thread(&id)?;
        let Some(open) = thread.open_interrupts()?.into_iter().next() else { return Ok("nothing to confirm".into()) };
        thread.resume_interrupt(&open.id, true)?;
        Ok("confirmed".into())
    })
    .await
}

/// Waits until an order has ended or waits for a confirmation, and tells how it stands.
async fn status(State(service): State<Service>, Path(id): Path<String>) -> Result<String, Failure> {
    beside(move || {
        let thread = service.store.thread(&id)?;
        let info = thread.wait_for_end(Duration::from_secs(3))?;
        let state = service.orders.get_state(&thread)?;
        let status = info.map_or("runs", |info| info.status().as_str());
        Ok(format!("{status}: {}", state.values.value().map_or("", String::as_str)))
    })
    .await
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

async fn serve() -> std::result::Result<(), AnyError> {
    let folder = tempfile::tempdir()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let store = Store::open(folder.path().join("orders.db"))?;
    let service = Service { store: store.clone(), orders: orders(address)? };
    // The tasks of the worker run in this runtime, on threads of their own.
    let worker = Worker::new(&store).register(&service.orders).concurrency(8);
    let router = Router::new()
        .route("/orders/{id}", post(place).get(status))
        .route("/orders/{id}/confirm", post(confirm))
        .route("/payments", post(payments))
        .with_state(service);
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    // A program with real users waits for a signal of the operating system in their place.
    let mut used = Ok(());
    let report = worker.arun_until(async { used = users(address).await }).await?;
    used?;
    server.abort();
    println!("the worker has continued {} runs", report.continued);
    Ok(())
}

fn main() -> std::result::Result<(), AnyError> {
    tokio::runtime::Runtime::new()?.block_on(serve())
}
