//! The declaration of a table, and the statements that follow from it.

use super::{TABLES, TableDescription, TableKey};

/// Declares tables: of each the kind of its check, its key, its rules and its columns. `=> table` names the owner of a
/// row; `= below(column)` and `= above(column)` say that a column holds the distance to another one.
macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$r:lifetime>)?: $check:ident, $key:ident $(($keys:literal))? $(, $rule:ident)* {
            $($column:ident: $type:ty $(=> $owner:ident)? $(= $distance:ident($of:ident))?),*
        }
    )*) => {
        /// The tables of a file.
        pub(crate) const TABLES: &[&super::TableDescription] = &[$(&$name::TABLE),*];
        $(
        $(#[$doc])*
        pub(crate) mod $name {
            use $crate::store::sqlite::tables::*;
            use $crate::store::sqlite::tables::sql::tables;
            use $crate::store::sqlite::tables::text::{columns, joined, text};

            /// The names of the columns.
            pub(crate) const NAMES: &[&str] = tables!(@names $check $(stringify!($column)),*);

            /// The description of the table.
            pub(crate) const TABLE: TableDescription = TableDescription {
                name: stringify!($name),
                columns: Row::COLUMNS,
                key: TableKey::$key $(($keys))?,
                rules: &[$(TableRule::$rule),*],
            };

            /// A row of the table.
            #[derive(Clone, Copy, Debug)]
            pub(crate) struct Row $(<$r>)? {
                $(pub(crate) $column: $type),*
            }

            impl<'r> TableRow<'r> for Row $(<$r>)? {
                const TABLE: &'static TableDescription = &TABLE;
                const COLUMNS: &'static [Column] =
                    tables!(@columns $check $(Column::of::<$type>(stringify!($column), &[$(stringify!($owner))?])),*);
                const SELECT: &'static str = text!("SELECT ", columns!($name, ""), " FROM ", TABLE.name, " ");
                const BY_KEY: &'static str =
                    text!("SELECT ", columns!($name, ""), " FROM ", TABLE.name, " WHERE ", tables!(@key));
                const INSERT: &'static str = tables!(@insert "INSERT INTO " $name);
                const PUT: &'static str = tables!(@insert "INSERT OR REPLACE INTO " $name);
                const DELETE: &'static str = text!("DELETE FROM ", TABLE.name, " WHERE ", tables!(@key));

                fn read_columns(columns: &mut RowColumns<'r, '_>) -> $crate::store::sqlite::fault::Res<Self> {
                    $(
                        let $column: $type = columns.next(stringify!($column))?;
                        $(let $column = column::$distance::turn($column, $of);)?
                    )*
                    Ok(Self { $($column),* })
                }

                fn each(&self, is_stored: bool, mut visit: impl FnMut(rusqlite::types::ValueRef<'_>)) {
                    $(
                        let stored = self.$column;
                        $(let stored = if is_stored { column::$distance::turn_back(stored, self.$of) } else { stored };)?
                        visit(stored.column());
                    )*
                    _ = is_stored;
                }
            }

            impl<'r> $check<'r> for Row $(<$r>)? {}
        }
        )*
    };
    (@names Bare $($name:expr),*) => { &[$($name),*] };
    (@names $check:ident $($name:expr),*) => { &[$($name,)* "xxh3"] };
    (@columns Bare $($column:expr),*) => { &[$($column),*] };
    (@columns $check:ident $($column:expr),*) => { &[$($column,)* Column::of::<i64>("xxh3", &[])] };
    (@key) => { joined!(NAMES.split_at(TABLE.key_columns()).0, "", " = ?", " AND ") };
    (@insert $verb:literal $name:ident) => {
        text!($verb, TABLE.name, " (", columns!($name, ""), ") VALUES (", joined!(&[""; NAMES.len()], "?", "", ", "), ")")
    };
}
pub(crate) use tables;

impl TableDescription {
    /// Returns the statement that makes a table with these columns for rows of a damaged file, which may have any type.
    pub(crate) fn create(&self) -> String {
        let columns: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        let key = columns[..self.key_columns()].join(", ");
        match self.key {
            TableKey::Number => {
                let rest = columns[1..].join(", ");
                format!("CREATE TABLE {} ({key} INTEGER PRIMARY KEY, {rest})", self.name)
            }
            TableKey::Columns(_) | TableKey::Descending(_) => {
                let order = if matches!(self.key, TableKey::Descending(_)) { " DESC" } else { "" };
                format!("CREATE TABLE {} ({}, PRIMARY KEY ({key}{order})) WITHOUT ROWID", self.name, columns.join(", "))
            }
        }
    }

    /// Returns the statement that counts the rows whose owner does not exist; `None` for a table whose rows have no
    /// owner.
    pub(crate) fn orphans(&self) -> Option<String> {
        let key = |owner: &str| TABLES.iter().find(|table| table.name == owner).map(|table| table.columns[0].name);
        let owners = self.columns.iter().filter_map(|column| Some((column.name, column.owner?)));
        let absent =
            owners.filter_map(|(column, owner)| Some(format!("{column} NOT IN (SELECT {} FROM {owner})", key(owner)?)));
        let absent: Vec<String> = absent.collect();
        let count = format!("SELECT count(*) FROM {} WHERE {}", self.name, absent.join(" OR "));
        if absent.is_empty() { None } else { Some(count) }
    }
}
