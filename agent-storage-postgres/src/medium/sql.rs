//! Texts of statements. All text comes from this crate; everything from a caller is a value.

use sqlx::postgres::PgArguments;
use sqlx::{Arguments, AssertSqlSafe, Encode, Postgres, Type};

use crate::error::Step;

/// Names of the tables of one store: the name of the schema, quoted, with a point.
#[derive(Clone, Debug)]
pub(crate) struct Names(String);

impl Names {
    /// Names in a schema, whose name [`PostgresConfig`](crate::PostgresConfig) has checked.
    pub(crate) fn new(schema: &str) -> Self {
        Self(format!("\"{schema}\"."))
    }

    /// Returns a statement in which `@.` stands for the schema.
    pub(crate) fn sql(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(text.replace("@.", &self.0))
    }
}

/// Statement that is put together from parts, with its values.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) text: String,
    pub(crate) values: PgArguments,
    count: usize,
}

impl Sql {
    /// Begins a statement whose first value, `$1`, is the tenant.
    pub(crate) fn of_tenant(tenant: &str) -> Step<Self> {
        let mut sql = Self { text: String::new(), values: PgArguments::default(), count: 0 };
        sql.add(tenant)?;
        Ok(sql)
    }

    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// Adds a value, and its place to the text.
    pub(crate) fn value<'t, T>(&mut self, value: T) -> Step<&mut Self>
    where
        T: Encode<'t, Postgres> + Type<Postgres>,
    {
        self.add(value)?;
        let place = format!("${}", self.count);
        Ok(self.push(&place))
    }

    fn add<'t, T: Encode<'t, Postgres> + Type<Postgres>>(&mut self, value: T) -> Step<()> {
        self.values.add(value).map_err(sqlx::Error::Encode)?;
        self.count += 1;
        Ok(())
    }
}
