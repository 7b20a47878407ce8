//! Stores on a server: each scenario has a schema of its own.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::store::Store;

use crate::driver::DriverKind;
use crate::scenario::Options;
use crate::{RunnerResult, vectors};

/// Runs every n-th scenario on a server, with both drivers.
pub(crate) fn verify(url: &str, folder: &Path, share: &str) -> RunnerResult<()> {
    let server = Some(&*Box::leak(url.to_owned().into_boxed_str()));
    let blocking = Options { server, ..Options::default() };
    let ways = [("postgres", blocking), ("postgres, async", Options { driver: DriverKind::Async, ..blocking })];
    let report = vectors::verify_share(folder, &ways, share.parse()?)?;
    println!("{} of {} give the trace of the reference", report.run - report.failed.len(), report.run);
    let surprises = report.surprises();
    if surprises.is_empty() { Ok(()) } else { Err(surprises.into()) }
}

/// Opens a store in a new schema, and returns its name.
pub(crate) fn store(url: &str) -> RunnerResult<(String, Store)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let schema = format!("parity_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    run(url, &format!("CREATE SCHEMA {schema}"))?;
    let joined = if url.contains('?') { '&' } else { '?' };
    let store = annals_postgres::open(&format!("{url}{joined}options=-csearch_path%3D{schema}"))?;
    Ok((schema, store))
}

/// Drops the schema of a store.
pub(crate) fn drop_schema(url: &str, schema: &str) -> RunnerResult<()> {
    run(url, &format!("DROP SCHEMA {schema} CASCADE"))
}

fn run(url: &str, sql: &str) -> RunnerResult<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        runtime.spawn(async move { _ = connection.await });
        client.batch_execute(sql).await?;
        Ok(())
    })
}
