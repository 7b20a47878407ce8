//! Opens a database: verifies the tables of the store, and makes them if there are none. Those of a dump of another
//! server get numbers of transactions that are below all of this one.

use annals::store::StoreError;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::client::{Connections, PgConnection};
use crate::error::{PgFault, open_error, open_fault};
use crate::sql;

/// The version of the schema.
const VERSION: i64 = 1;

/// What an opening finds.
struct FoundSchema {
    encoding: String,
    /// `None`: there are no tables.
    version: Option<i64>,
    /// The identifier of the server.
    system: i64,
    is_new: bool,
}

/// What an opening does with a database that has no tables.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum NewTables {
    Refused,
    Whole,
    /// The tables that grow are divided into so many parts by a hash of the thread.
    Divided(u32),
}

/// Verifies the schema of the database, and returns the mark of the server. `new_tables` says what becomes of a
/// database without tables; tables that are there cannot be divided. `shown` names the database in errors.
pub(crate) async fn prepare(lanes: &Connections, shown: &str, new_tables: NewTables) -> Result<u32, StoreError> {
    let of = lanes.reader().await.map_err(|fault| open_fault(shown, fault))?;
    let found = make(&of, new_tables).await.map_err(|fault| open_fault(shown, fault))?;
    if matches!(new_tables, NewTables::Divided(_)) && !found.is_new {
        return Err(open_error(shown, "it has tables, which cannot be divided any more"));
    }
    if found.encoding != "UTF8" {
        let reason = format!("the database is encoded in {}, and UTF8 is needed", found.encoding);
        return Err(open_error(shown, reason));
    }
    let Some(version) = found.version else {
        return Err(StoreError::NotAStore { path: shown.into(), reason: "the database has no tables of one".into() });
    };
    if version != VERSION {
        let reason = format!("its tables are of version {version}, and this program reads version {VERSION}");
        return Err(open_error(shown, reason));
    }
    Ok((found.system ^ (found.system >> 32)) as u32)
}

/// Makes the tables if there are none, and they are not refused.
async fn make(of: &PgConnection, new_tables: NewTables) -> Result<FoundSchema, PgFault> {
    of.begin().await?;
    let client = &of.client;
    let encoding: String = client.query_typed(sql::ENCODING, &[]).await?[0].try_get(0)?;
    let there = client.query_typed(sql::SCHEMA_IS_THERE, &[]).await?;
    let mut is_there: bool = there[0].try_get(0)?;
    let mut is_new = false;
    if encoding == "UTF8" && !is_there && new_tables != NewTables::Refused {
        // Of several processes that open an empty database, one makes the tables.
        client.query_typed(sql::LOCK_SCHEMA, &[]).await?;
        let there = client.query_typed(sql::SCHEMA_IS_THERE, &[]).await?;
        if !there[0].try_get::<_, bool>(0)? {
            is_new = true;
            client.batch_execute(&sql::schema(new_tables)).await?;
            let version = (&VERSION as &(dyn ToSql + Sync), Type::INT8);
            client.query_typed(sql::NOTE_SCHEMA, &[version]).await?;
        }
        is_there = true;
    }
    let mut found = FoundSchema { encoding, version: None, system: 0, is_new };
    if found.encoding == "UTF8" && is_there {
        let row = client.query_typed(sql::SCHEMA_VERSION, &[]).await?.remove(0);
        (found.version, found.system) = (Some(row.try_get(0)?), row.try_get(2)?);
        let is_restored = row.try_get::<_, i64>(1)? != found.system;
        if found.version == Some(VERSION) && is_restored {
            lower(client).await?;
        }
    }
    client.batch_execute(sql::COMMIT).await?;
    Ok(found)
}

/// Lowers the numbers of transactions that another server has given.
async fn lower(client: &Client) -> Result<(), PgFault> {
    if !client.query_typed(sql::NOTE_SERVER, &[]).await?.is_empty() {
        client.query_typed(sql::LOWER_CHECKPOINTS, &[]).await?;
        client.query_typed(sql::LOWER_MARK, &[]).await?;
    }
    Ok(())
}
