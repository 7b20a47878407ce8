//! The declaration of a table, and the statements that follow from it.

use super::{Column, ColumnKind, TABLES, TableDescription, TableKey, TableRule};

/// Declares tables: of each the kind of its check, its key, its rules and its columns. `=> table` names the owner of a
/// row, or what a value refers to; `= below(column)` and `= above(column)` say that a column holds the distance to
/// another one.
macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$r:lifetime>)?: $check:ident, $key:ident $(($keys:literal))? $(, $rule:ident)* {
            $($column:ident: $type:ty $(=> $owner:ident $(or $other:ident)?)? $(= $distance:ident($of:ident))?),*
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
                    tables!(@columns $check $(
                        Column::of::<$type>(stringify!($column), &[$(stringify!($owner) $(, stringify!($other))?)?])
                    ),*);
                const SELECT: &'static str = text!("SELECT ", columns!($name, ""), " FROM ", TABLE.name, " ");
                const BY_KEY: &'static str =
                    text!("SELECT ", columns!($name, ""), " FROM ", TABLE.name, " WHERE ", tables!(@key));
                const INSERT: &'static str = tables!(@insert "INSERT INTO ");
                const PUT: &'static str = tables!(@insert "INSERT OR REPLACE INTO ");
                const DELETE: &'static str = text!("DELETE FROM ", TABLE.name, " WHERE ", tables!(@key));
                const FROM: &'static str = text!(Row::SELECT, "WHERE ", NAMES[0], " >= ?1 ORDER BY ", NAMES[0]);
                const UNDER: &'static str = text!(
                    Row::SELECT, "WHERE ", NAMES[0], " = ?1 ORDER BY ",
                    joined!(NAMES.split_at(TABLE.key_columns()).0, "", "", ", "), TABLE.last_order()
                );
                const DELETE_UNDER: &'static str = text!("DELETE FROM ", TABLE.name, " WHERE ", NAMES[0], " = ?1");
                const COUNT: &'static str = text!("SELECT count(*) FROM ", TABLE.name);
                const EXISTS: &'static str = text!("SELECT EXISTS (SELECT 1 FROM ", TABLE.name, ")");
                const GREATEST: &'static str = text!("SELECT max(", NAMES[0], ") FROM ", TABLE.name);

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
    // The columns are not named: a short text is found sooner among the prepared statements.
    (@insert $verb:literal) => {
        text!($verb, TABLE.name, " VALUES (", joined!(&[""; NAMES.len()], "?", "", ","), ")")
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
                let (columns, order) = (columns.join(", "), self.last_order());
                format!("CREATE TABLE {} ({columns}, PRIMARY KEY ({key}{order})) WITHOUT ROWID", self.name)
            }
        }
    }

    /// Returns the statement that counts the rows whose owner does not exist, and those that nothing refers to; `None`
    /// for a table whose rows have no owner and need no reference.
    pub(crate) fn orphans(&self) -> Option<String> {
        let keys = |owners: &[&str]| -> Vec<String> {
            let owners = TABLES.iter().filter(|table| owners.contains(&table.name));
            owners.map(|table| format!("SELECT {} FROM {}", table.columns[0].name, table.name)).collect()
        };
        let owned = self.columns.iter().filter(|column| column.kind == ColumnKind::Integer);
        let owned = owned.map(|column| (column.name, keys(column.owners)));
        let used = [(self.columns[0].name, if self.is(TableRule::Used) { self.references() } else { Vec::new() })];
        let wanted = owned.chain(used).filter(|(_, wanted)| !wanted.is_empty());
        let absent: Vec<String> =
            wanted.map(|(column, wanted)| format!("{column} NOT IN ({})", wanted.join(" UNION "))).collect();
        let count = format!("SELECT count(*) FROM {} WHERE {}", self.name, absent.join(" OR "));
        if absent.is_empty() { None } else { Some(count) }
    }

    /// Returns the statements that read the columns which refer to the table.
    fn references(&self) -> Vec<String> {
        let columns = TABLES.iter().flat_map(|table| table.columns.iter().map(move |column| (table.name, column)));
        let to_this = columns.filter(|(_, column)| column.owners.contains(&self.name));
        let read = |(table, Column { name, kind, .. }): (&str, &Column)| match kind {
            ColumnKind::Integer => format!("SELECT {name} FROM {table}"),
            _ => format!("SELECT {name} FROM {table} WHERE typeof({name}) = 'integer'"),
        };
        to_this.map(read).collect()
    }
}

/// Selects the columns of a table, which has a name in the statement, and more.
macro_rules! select {
    ($table:ident as $alias:ident, $($rest:expr),+ $(,)?) => {
        $crate::store::sqlite::tables::text::text!(
            "SELECT ",
            $crate::store::sqlite::tables::text::columns!($table, concat!(stringify!($alias), ".")),
            $($rest),+
        )
    };
}
pub(crate) use select;
