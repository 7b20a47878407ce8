//! A server for the tests: that of the environment, or one that is started for them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use annals_postgres::PostgresBackend;
use tokio_postgres::NoTls;

/// The user as whom the server runs if the tests run as root, which it refuses.
const USERS: [&str; 2] = ["postgres", "nobody"];

#[allow(clippy::disallowed_methods, reason = "the environment names the server of the tests")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(crate) fn is_required() -> bool {
    variable("ANNALS_POSTGRES_REQUIRED").is_some()
}

/// A server. One that was started is stopped when this is dropped.
pub(crate) struct Server {
    url: String,
    started: Option<Started>,
    schemas: AtomicU64,
}

struct Started {
    folder: tempfile::TempDir,
    programs: PathBuf,
    user: Option<&'static str>,
}

impl Server {
    pub(crate) fn start() -> Result<Self, String> {
        if let Some(url) = variable("ANNALS_POSTGRES") {
            return Ok(Self { url, started: None, schemas: AtomicU64::new(0) });
        }
        let programs = programs().ok_or("there is no initdb; Debian's package is `postgresql`")?;
        let user = if is_root() { Some(user().ok_or("root needs another user for the server")?) } else { None };
        let folder = tempfile::Builder::new().prefix("annals-pg").tempdir().map_err(|error| error.to_string())?;
        if let Some(user) = user {
            checked(Command::new("chown").arg(user).arg(folder.path()))?;
        }
        let started = Started { folder, programs, user };
        let data = started.data();
        checked(started.command("initdb").arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]))?;
        started.control("start")?;
        let url = format!("postgres://postgres@localhost/postgres?host={}", started.folder.path().display());
        Ok(Self { url, started: Some(started), schemas: AtomicU64::new(0) })
    }

    /// Runs statements on a connection of its own.
    pub(crate) fn run(&self, sql: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.expect("the server is reached");
            tokio::spawn(connection);
            client.batch_execute(sql).await.expect("the statements run");
        });
    }

    /// Cuts all connections but its own.
    pub(crate) fn cut(&self) {
        self.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'");
    }

    /// Kills the server and starts it again; a server that was not started here is left alone.
    pub(crate) fn restart(&self) {
        if let Some(started) = &self.started {
            started.control("stop").expect("the server stops");
            started.control("start").expect("the server starts");
        }
    }

    /// Returns the URL of an empty schema.
    pub(crate) fn empty(&self) -> String {
        let number = self.schemas.fetch_add(1, Ordering::Relaxed);
        let name = format!("annals_{}_{number}", std::process::id());
        self.run(&format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"));
        let joined = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{joined}options=-csearch_path%3D{name}", self.url)
    }

    /// Returns a backend in an empty schema.
    pub(crate) fn backend(&self) -> PostgresBackend {
        PostgresBackend::connect(&self.empty()).expect("the server is reached")
    }
}

impl Started {
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        let mut command = match self.user {
            Some(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--"]).arg(path);
                command
            }
            None => Command::new(path),
        };
        command.current_dir(self.folder.path());
        command
    }

    fn control(&self, action: &str) -> Result<(), String> {
        let folder = self.folder.path().display();
        let options = format!(
            "-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c max_connections=200 -c autovacuum=off"
        );
        let log = self.folder.path().join("log");
        let mut command = self.command("pg_ctl");
        command.args(["-w", "-s", "-m", "immediate", "-D"]).arg(self.data()).arg("-l").arg(log);
        checked(command.args(["-o", &options, action]))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Err(reason) = self.control("stop") {
            println!("the server was not stopped: {reason}");
        }
    }
}

fn checked(command: &mut Command) -> Result<(), String> {
    let Output { status, stderr, .. } = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&stderr).into_owned()) }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.starts_with(b"0"))
}

fn user() -> Option<&'static str> {
    USERS.into_iter().find(|user| Command::new("id").arg(user).output().is_ok_and(|id| id.status.success()))
}

/// Returns the folder of the programs of the newest server.
fn programs() -> Option<PathBuf> {
    let of_debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = of_debian.map(|entry| entry.path().join("bin")).collect();
    found.sort();
    found.extend(variable("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>()));
    found.into_iter().rev().find(|folder| Path::new(folder).join("initdb").exists() && folder.join("postgres").exists())
}
