//! The guard of the connection that writes: the parts of the file that a statement of an application reaches.
//!
//! SQLite asks the guard about each table and each operation while it compiles a statement. The guard is closed around
//! every statement of an application, and open around those of the library. *Absent:* the schema that such statements
//! leave behind, which [`schema`](super::schema) verifies before the commit.
//!
//! Invariants: a statement of an application is compiled and run while the guard is closed; none of them is cached.

use crate::store::sqlite::fault::Res;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The beginning of the names of tables and indexes of an application.
const PREFIX: &[u8] = b"app_";
/// The beginning of the names of indexes that SQLite makes for a constraint of such a table.
const AUTO_INDEX: &[u8] = b"sqlite_autoindex_app_";
/// The table in which SQLite counts for `AUTOINCREMENT`.
const SEQUENCE: &str = "sqlite_sequence";

/// Functions that load code, or answer with the address of code.
const FUNCTIONS_REFUSED: [&str; 2] = ["load_extension", "fts3_tokenizer"];

/// The guard of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct SqlGuard(Arc<AtomicBool>);

/// A closed guard, until it is dropped.
pub(crate) struct ClosedGuard<'a>(&'a AtomicBool);

impl SqlGuard {
    /// Makes SQLite ask the guard about the statements of a connection.
    pub(crate) fn install(&self, conn: &mut Connection) -> Res<()> {
        let closed = Arc::clone(&self.0);
        let decide = move |asked: AuthContext<'_>| match !closed.load(Ordering::Relaxed) || is_allowed(&asked) {
            true => Authorization::Allow,
            false => Authorization::Deny,
        };
        conn.authorizer(Some(decide))?;
        Ok(())
    }

    /// Closes the guard until the returned value is dropped.
    pub(crate) fn close(&self) -> ClosedGuard<'_> {
        self.0.store(true, Ordering::Relaxed);
        ClosedGuard(&self.0)
    }
}

impl Drop for ClosedGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn starts_with(name: &str, prefix: &[u8]) -> bool {
    name.as_bytes().get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Returns whether a name is one that an application may give to a table or an index.
pub(crate) fn is_of_application(name: &str) -> bool {
    starts_with(name, PREFIX)
}

fn is_index(name: &str) -> bool {
    is_of_application(name) || starts_with(name, AUTO_INDEX)
}

/// Returns whether a table is the schema. SQLite itself refuses to change it by a statement, and writes it for one that
/// makes a table.
fn is_schema(table: &str) -> bool {
    ["sqlite_master", "sqlite_schema"].iter().any(|name| name.eq_ignore_ascii_case(table))
}

/// Decides about one step of a statement of an application.
fn is_allowed(asked: &AuthContext<'_>) -> bool {
    // No trigger or view reaches a table of an application; the name that SQLite gives for them may be that of a query.
    if asked.database_name.is_some_and(|database| !database.eq_ignore_ascii_case("main")) {
        return false;
    }
    let is_counter = |table: &str| table.eq_ignore_ascii_case(SEQUENCE);
    match asked.action {
        AuthAction::Select | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => {
            !FUNCTIONS_REFUSED.iter().any(|name| name.eq_ignore_ascii_case(function_name))
        }
        AuthAction::Read { table_name, .. } => {
            let is_json = ["json_each", "json_tree"].iter().any(|name| name.eq_ignore_ascii_case(table_name));
            is_of_application(table_name) || is_schema(table_name) || is_counter(table_name) || is_json
        }
        AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name } => {
            is_of_application(table_name) || is_schema(table_name) || is_counter(table_name)
        }
        AuthAction::CreateTable { table_name } => is_of_application(table_name) || is_counter(table_name),
        AuthAction::DropTable { table_name } | AuthAction::AlterTable { table_name, .. } => {
            is_of_application(table_name)
        }
        AuthAction::CreateIndex { index_name, table_name } | AuthAction::DropIndex { index_name, table_name } => {
            is_index(index_name) && is_of_application(table_name)
        }
        AuthAction::Reindex { index_name } => is_index(index_name),
        // Pragmas, transactions, attached files, triggers, views, virtual tables, everything temporary, and every newer
        // action.
        _ => false,
    }
}
