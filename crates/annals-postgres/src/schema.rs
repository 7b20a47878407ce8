//! Opens a database: verifies the tables of the store, and makes them if there are none.

use annals::store::StoreError;
use tokio_postgres::Client;

use crate::client::Connections;
use crate::error::{PgFault, open_error, open_fault};
use crate::sql;

/// The version of the schema.
const VERSION: i64 = 1;

/// Verifies the schema of the database. `shown` names it in errors.
pub(crate) async fn prepare(lanes: &Connections, shown: &str) -> Result<(), StoreError> {
    let client = lanes.connect().await.map_err(|fault| open_fault(shown, fault))?;
    let (encoding, version) = make(&client).await.map_err(|fault| open_fault(shown, fault))?;
    if encoding != "UTF8" {
        return Err(open_error(shown, format!("the database is encoded in {encoding}, and UTF8 is needed")));
    }
    if version != VERSION {
        let reason = format!("its tables are of version {version}, and this program reads version {VERSION}");
        return Err(open_error(shown, reason));
    }
    Ok(())
}

/// Makes the tables if there are none. Returns the encoding of the database and the version of the tables.
async fn make(client: &Client) -> Result<(String, i64), PgFault> {
    let encoding: String = client.query_typed(sql::ENCODING, &[]).await?[0].try_get(0)?;
    client.batch_execute(sql::BEGIN).await?;
    let there = client.query_typed(sql::SCHEMA_IS_THERE, &[]).await?;
    if encoding == "UTF8" && !there[0].try_get::<_, bool>(0)? {
        // Of several processes that open an empty database, one makes the tables.
        client.query_typed(sql::LOCK_SCHEMA, &[]).await?;
        let there = client.query_typed(sql::SCHEMA_IS_THERE, &[]).await?;
        if !there[0].try_get::<_, bool>(0)? {
            client.batch_execute(sql::SCHEMA).await?;
            let version = (&VERSION as &(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type::INT8);
            client.query_typed(sql::NOTE_SCHEMA, &[version]).await?;
        }
    }
    let version = match encoding.as_str() {
        "UTF8" => client.query_typed(sql::SCHEMA_VERSION, &[]).await?[0].try_get(0)?,
        _ => 0,
    };
    client.batch_execute(sql::COMMIT).await?;
    Ok((encoding, version))
}
