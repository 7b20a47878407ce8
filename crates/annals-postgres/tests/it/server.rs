//! A server for the tests: that of the environment, or one that is started for them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use annals_postgres::PostgresBackend;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// The name of the socket in the folder of a server.
pub(crate) const SOCKET: &str = ".s.PGSQL.5432";
/// Attempts to reach a server that recovers.
const CONNECTS_MAX: u32 = 100_000;
const CONNECT_PAUSE: Duration = Duration::from_millis(2);
/// Attempts to start a server.
const STARTS_MAX: u32 = 1_000;

/// The schemas so far: servers by different sockets may be one.
static SCHEMAS: AtomicU64 = AtomicU64::new(0);

/// The user as whom the server runs if the tests run as root, which it refuses.
const USERS: [&str; 2] = ["postgres", "nobody"];

#[allow(clippy::disallowed_methods, reason = "the environment names the server of the tests")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(crate) fn is_required() -> bool {
    variable("ANNALS_POSTGRES_REQUIRED").is_some()
}

/// A server. One that was started is stopped when this is dropped.
pub(crate) struct Server {
    url: String,
    started: Option<Started>,
    /// The URLs of schemas that tests have left, whose tables are empty.
    left: Mutex<Vec<String>>,
    /// Another server, which poolers stand before.
    behind_poolers: OnceLock<Option<Box<Server>>>,
}

struct Started {
    folder: tempfile::TempDir,
    /// The files of a server that never ran, in the folder of the first one.
    template: PathBuf,
    programs: PathBuf,
    user: Option<&'static str>,
    fsync: &'static str,
    /// Options of the server, after the others.
    more: String,
}

impl Server {
    /// Starts a server that does not sync: what it has acknowledged survives its end, and not that of the machine.
    pub(crate) fn start() -> Result<Self, String> {
        Self::start_with("off")
    }

    /// Starts a server that syncs each commit.
    #[allow(dead_code, reason = "the figures use it")]
    pub(crate) fn start_synced() -> Result<Self, String> {
        Self::start_with("on")
    }

    fn start_with(fsync: &'static str) -> Result<Self, String> {
        if let Some(url) = variable("ANNALS_POSTGRES") {
            return Ok(Self::at(url));
        }
        let programs = programs().ok_or("there is no initdb; Debian's package is `postgresql`")?;
        let user = if is_root() { Some(user().ok_or("root needs another user for the server")?) } else { None };
        let folder = folder(user)?;
        let template = folder.path().join("template");
        let started = Started { folder, template, programs, user, fsync, more: String::new() };
        started.init(&started.template)?;
        started.make()?;
        Self::of(started)
    }

    /// Returns the server of a URL, which runs.
    pub(crate) fn at(url: String) -> Self {
        Self::with(url, None)
    }

    fn with(url: String, started: Option<Started>) -> Self {
        Self { url, started, left: Mutex::default(), behind_poolers: OnceLock::new() }
    }

    /// Ends this server as a failure does, and starts another one on a copy of its files.
    pub(crate) fn moved(&self) -> Option<Self> {
        let started = self.started.as_ref()?;
        started.control("stop").expect("the server stops");
        let other = started.on_another_folder().expect("a folder");
        let (from, to) = (started.data(), other.data());
        checked(started.as_user("cp").arg("-a").args([from, to])).expect("the files are copied");
        _ = std::fs::remove_file(other.data().join("postmaster.pid"));
        Some(Self::of(other).expect("the server starts"))
    }

    /// Returns whether the server was started here.
    pub(crate) fn is_started(&self) -> bool {
        self.started.is_some()
    }

    /// Starts another server without anything in it, with the identifier of this one; `None` beside a server that was
    /// not started here.
    pub(crate) fn another(&self) -> Option<Self> {
        let other = self.started.as_ref()?.on_another_folder().expect("a folder");
        other.make().expect("the server is made");
        Some(Self::of(other).expect("the server starts"))
    }

    /// Returns the other server that poolers stand before, which is started once; `None` as [`Server::another`].
    pub(crate) fn behind_poolers(&self) -> Option<&Self> {
        self.behind_poolers.get_or_init(|| self.another().map(Box::new)).as_deref()
    }

    /// Starts another server that has an identifier of its own, as one on another machine.
    pub(crate) fn foreign(&self) -> Option<Self> {
        let other = self.started.as_ref()?.on_another_folder().expect("a folder");
        other.init(&other.data()).expect("the server is made");
        Some(Self::of(other).expect("the server starts"))
    }

    /// Starts another server that listens to a port with TLS. Returns the port and the file of its certificate; `None`
    /// if no certificate can be made.
    #[allow(dead_code, reason = "the tests of the feature `tls` use it")]
    pub(crate) fn with_tls(&self) -> Option<(Self, u16, PathBuf)> {
        let mut other = self.started.as_ref()?.on_another_folder().expect("a folder");
        other.make().expect("the server is made");
        let file = |name: &str| other.folder.path().join(name);
        let (certificate, key) = (file("certificate.pem"), file("key.pem"));
        let options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
                       -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE";
        let mut openssl = other.as_user("openssl");
        checked(openssl.args(options.split(' ')).arg("-keyout").arg(&key).arg("-out").arg(&certificate)).ok()?;
        let (certificate_shown, key) = (certificate.display(), key.display());
        // Another program may take a port before the server has it.
        let mut refused = String::new();
        for _ in 0..10 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = free.local_addr().expect("an address").port();
            drop(free);
            other.more = format!(
                "-c listen_addresses=localhost -c port={port} -c ssl=on -c ssl_cert_file={certificate_shown} \
                 -c ssl_key_file={key}"
            );
            match other.control("start") {
                Ok(()) => {
                    let folder = other.folder.path().display();
                    let url = format!("postgres://postgres@localhost:{port}/postgres?host={folder}");
                    return Some((Self::with(url, Some(other)), port, certificate));
                }
                Err(error) => refused = error,
            }
        }
        panic!("the server starts at no port: {refused}");
    }

    fn of(started: Started) -> Result<Self, String> {
        started.start();
        let url = format!("postgres://postgres@localhost/postgres?host={}", started.folder.path().display());
        Ok(Self::with(url, Some(started)))
    }

    /// Runs statements on a connection of its own. A server that is not there yet is waited for.
    pub(crate) fn run(&self, sql: &str) {
        self.select(sql);
    }

    /// Runs statements, and returns the first column of all rows as text.
    pub(crate) fn select(&self, sql: &str) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            for _ in 0..CONNECTS_MAX {
                let Ok((client, connection)) = tokio_postgres::connect(&self.url, NoTls).await else {
                    // Attempts without a pause take the processor from the server that recovers.
                    tokio::time::sleep(CONNECT_PAUSE).await;
                    continue;
                };
                tokio::spawn(connection);
                let rows = match client.simple_query(sql).await {
                    // The server has ended all connections, or the connection.
                    Err(error) if error.code().is_none_or(|code| code.code().starts_with("57P")) => continue,
                    rows => rows.expect("the statements run"),
                };
                let first = |message: &SimpleQueryMessage| match message {
                    SimpleQueryMessage::Row(row) => row.get(0).map(ToOwned::to_owned),
                    _ => None,
                };
                return rows.iter().filter_map(first).collect();
            }
            panic!("the server is not reached");
        })
    }

    /// Cuts all connections but its own.
    pub(crate) fn cut(&self) {
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        );
    }

    /// Kills the process behind a connection, after which the server ends all others and recovers. A server that was
    /// not started here is left alone.
    pub(crate) fn kill_backend(&self) {
        let others = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                      AND backend_type = 'client backend' ORDER BY random() LIMIT 1";
        // A process of a connection that is being closed ends before it is killed: then another one is.
        let mut refused = 0;
        while let Some(pid) = self.started.as_ref().and_then(|_| self.select(others).pop()) {
            let Err(error) = try_kill(&pid) else { return };
            refused += 1;
            assert!(refused < 100, "no process is killed: {error}");
        }
    }

    /// Kills the server and starts it again; a server that was not started here is left alone.
    pub(crate) fn restart(&self) {
        if let Some(started) = &self.started {
            started.kill();
            started.start();
        }
    }

    /// Does something while another connection has run a statement in a transaction that it does not end.
    pub(crate) fn while_locked(&self, sql: &str, act: impl FnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.expect("the server is reached");
            tokio::spawn(connection);
            client.batch_execute(&format!("BEGIN; {sql}")).await.expect("the statement runs");
            act();
            client.batch_execute("ROLLBACK").await.expect("the transaction ends");
        });
    }

    /// Returns a table space of a few megabytes; `None` if no file system can be mounted.
    pub(crate) fn small_disk(&self) -> Option<SmallDisk> {
        let started = self.started.as_ref()?;
        let folder = started.folder.path().join("small");
        std::fs::create_dir(&folder).ok()?;
        let options = ["-t", "tmpfs", "-o", "size=4m,mode=777", "tmpfs"];
        checked(Command::new("mount").args(options).arg(&folder)).ok()?;
        let disk = SmallDisk { name: "small", folder };
        let data = disk.folder.join("data");
        checked(started.as_user("mkdir").arg(&data)).ok()?;
        self.run(&format!("CREATE TABLESPACE {} LOCATION '{}'", disk.name, data.display()));
        Some(disk)
    }

    /// Restores the dump of a schema of another server.
    pub(crate) fn restore(&self, mut dump: Command, url: &str, schema: &str) {
        let started = self.started.as_ref().expect("it was started");
        let file = started.folder.path().join("dump");
        let plain = url.split("&options").next().unwrap_or_default();
        let dumped = dump.args(["--schema", schema, "--dbname", plain]).output().expect("the dump runs");
        assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
        std::fs::write(&file, &dumped.stdout).expect("the dump is stored");
        let mut restore = started.command("psql");
        restore.args(["--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", &self.url, "--file"]).arg(&file);
        checked(&mut restore).expect("the dump is restored");
    }

    /// Returns the path of the socket of a server that was started here.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        Some(self.started.as_ref()?.folder.path().join(SOCKET))
    }

    /// Returns the command that runs a program of the server as its user.
    pub(crate) fn command(&self, program: &str) -> Option<Command> {
        Some(self.started.as_ref()?.command(program))
    }

    /// Returns the URL of another database.
    #[allow(dead_code, reason = "the figures use it")]
    pub(crate) fn url_of_database(&self, name: &str) -> String {
        let (server, options) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let server = server.rsplit_once('/').map_or(server, |(server, _)| server);
        format!("{server}/{name}?{options}")
    }

    /// Returns the URL of a schema.
    pub(crate) fn url_of(&self, schema: &str) -> String {
        let joined = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{joined}options=-csearch_path%3D{schema}", self.url)
    }

    /// Returns the URL of an empty schema.
    pub(crate) fn empty(&self) -> String {
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        let name = format!("annals_{}_{number}", std::process::id());
        self.run(&format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"));
        self.url_of(&name)
    }

    /// Runs a test with the URL of a schema whose tables are empty: one that an earlier test has left, or a new one.
    /// Making the tables takes longer than most tests.
    pub(crate) fn with_tables(&self, test: impl FnOnce(&str)) {
        let left = self.left.lock().expect("no thread panics").pop();
        let url = left.unwrap_or_else(|| self.empty());
        test(&url);
        let schema = url.rsplit("%3D").next().unwrap_or_default();
        self.run(&format!(
            "DO $$ DECLARE name text; BEGIN FOR name IN SELECT tablename FROM pg_tables \
             WHERE schemaname = '{schema}' AND tablename <> 'annals_schema' \
             LOOP EXECUTE format('DELETE FROM {schema}.%I', name); END LOOP; END $$"
        ));
        self.left.lock().expect("no thread panics").push(url);
    }

    /// Returns a backend in an empty schema.
    pub(crate) fn backend(&self) -> PostgresBackend {
        PostgresBackend::connect(&self.empty()).expect("the server is reached")
    }
}

/// A table space on a small file system, which is unmounted at the end.
pub(crate) struct SmallDisk {
    pub(crate) name: &'static str,
    folder: PathBuf,
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        _ = checked(Command::new("umount").arg("--lazy").arg(&self.folder));
    }
}

impl Started {
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn on_another_folder(&self) -> Result<Self, String> {
        let (template, programs, more) = (self.template.clone(), self.programs.clone(), String::new());
        Ok(Self { folder: folder(self.user)?, template, programs, user: self.user, fsync: self.fsync, more })
    }

    /// Returns the command that runs a program as the user of the server.
    fn as_user(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match self.user {
            Some(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.current_dir(self.folder.path());
        command
    }

    fn command(&self, program: &str) -> Command {
        self.as_user(self.programs.join(program))
    }

    fn init(&self, folder: &Path) -> Result<(), String> {
        let options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions"];
        checked(self.command("initdb").arg("-D").arg(folder).args(options))
    }

    /// Copies the files of a server that never ran.
    fn make(&self) -> Result<(), String> {
        checked(self.as_user("cp").arg("-a").args([&self.template, &self.data()]))
    }

    /// Starts the server. One that was killed before is gone when its processes have noticed.
    fn start(&self) {
        let mut outcome = Ok(());
        for _ in 0..STARTS_MAX {
            outcome = self.control("start");
            if outcome.is_ok() {
                return;
            }
        }
        outcome.expect("the server starts");
    }

    /// Kills the first process of the server; the others end by themselves.
    fn kill(&self) {
        let pid = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("the server runs");
        kill(pid.lines().next().expect("it begins with the number of the process"));
    }

    fn control(&self, action: &str) -> Result<(), String> {
        let (folder, fsync, more) = (self.folder.path().display(), self.fsync, &self.more);
        let quick =
            if fsync == "off" { "-c full_page_writes=off -c wal_level=minimal -c max_wal_senders=0" } else { "" };
        let options = format!(
            "-c listen_addresses='' -c unix_socket_directories={folder} -c fsync={fsync} -c max_connections=200 \
             -c autovacuum=off {quick} {more}"
        );
        let log = self.folder.path().join("log");
        let mut command = self.command("pg_ctl");
        command.args(["-w", "-s", "-m", "immediate", "-D"]).arg(self.data()).arg("-l").arg(log);
        checked(command.args(["-o", &options, action]))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A server that was killed is not there.
        _ = self.control("stop");
    }
}

fn folder(user: Option<&str>) -> Result<tempfile::TempDir, String> {
    let folder = tempfile::Builder::new().prefix("annals-pg").tempdir().map_err(|error| error.to_string())?;
    if let Some(user) = user {
        checked(Command::new("chown").arg(user).arg(folder.path()))?;
    }
    Ok(folder)
}

pub(crate) fn kill(pid: &str) {
    try_kill(pid).expect("the process is killed");
}

fn try_kill(pid: &str) -> Result<(), String> {
    checked(Command::new("kill").args(["-KILL", pid.trim()]))
}

pub(crate) fn checked(command: &mut Command) -> Result<(), String> {
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

/// Returns the folder of the programs: of Debian's newest server, or one of the path.
fn programs() -> Option<PathBuf> {
    let of_debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = of_debian.map(|entry| entry.path().join("bin")).collect();
    found.sort();
    found.reverse();
    found.extend(variable("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>()));
    found.into_iter().find(|folder| Path::new(folder).join("initdb").exists() && folder.join("postgres").exists())
}
