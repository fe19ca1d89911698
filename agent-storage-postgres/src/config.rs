//! Address and options of a store.

use std::fmt;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::setters;
use agent_core::store::{Isolation, Registry};
use agent_core::text::quoted;
use agent_core::{Error, Result};
use sqlx::postgres::{PgConnectOptions, PgPool};

use crate::address::Servers;

/// Options of a [`PostgresStore`](crate::PostgresStore).
///
/// ```
/// use agent_storage_postgres::PostgresConfig;
///
/// let config = PostgresConfig::from_url("postgres://agent@db.example/agents?schema=prod&connections=32")?;
/// assert_eq!(config.schema(), "prod");
/// let error = PostgresConfig::from_url("postgres://db.example/agents?shcema=prod").unwrap_err();
/// assert!(error.to_string().contains("shcema"));
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone)]
pub struct PostgresConfig {
    pub(crate) servers: Servers,
    pub(crate) schema: String,
    pub(crate) connections: usize,
    pub(crate) lock_timeout: Duration,
    pub(crate) statement_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) wait_timeout: Duration,
    pub(crate) long_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) hint_interval: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) migrate: bool,
    /// Number of partitions of the table of events, if that is said.
    pub(crate) partitions: Option<u32>,
    pub(crate) isolation: Isolation,
    /// True if the address is that of a pooler in transaction mode.
    pub(crate) is_pooled: bool,
    pub(crate) effects: Effects,
    listen: Listen,
}

/// Place at which a store listens for changes by others.
#[derive(Clone)]
enum Listen {
    /// The server of the store.
    Same,
    At(Box<Servers>),
    Nowhere,
}

impl PostgresConfig {
    /// Default name of the schema: `agent`.
    pub const DEFAULT_SCHEMA: &'static str = "agent";
    /// Default limit on connections: 16. A commit needs one for one round trip.
    pub const DEFAULT_CONNECTIONS: usize = 16;
    /// Default limit on connections [beside a pool](Self::with_pool) of the host: 8.
    pub const DEFAULT_CONNECTIONS_BESIDE_A_POOL: usize = 8;
    /// Default limit on the wait for a lock of another transaction: 5 seconds.
    pub const DEFAULT_LOCK_TIMEOUT: Duration = Duration::from_secs(5);
    /// Default limit on one statement: 10 seconds. Those of deletions of tenants, purges, checks and rebuilds have the next
    /// limit.
    pub const DEFAULT_STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
    /// Default limit on one statement that reads or changes all of a tenant or a session: an hour.
    pub const DEFAULT_LONG_TIMEOUT: Duration = Duration::from_secs(3600);
    /// Default time after which a connection that nobody uses is closed: 5 minutes.
    pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
    /// Default limit on making a connection: 5 seconds.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// Default limit on the wait for a connection of the store: 10 seconds.
    pub const DEFAULT_WAIT_TIMEOUT: Duration = Duration::from_secs(10);
    /// Default time for which changes are collected before other stores are told of them: 10 ms.
    pub const DEFAULT_HINT_INTERVAL: Duration = Duration::from_millis(10);
    /// Default interval at which a caller that waits for a change reads the session by itself while the store listens: 5 s.
    pub const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(5);
    /// Longest of these times: a day.
    pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
    /// Most partitions of the table of events.
    pub const MAX_PARTITIONS: u32 = 1024;
    /// Most connections of one store.
    pub const MAX_CONNECTIONS: usize = 1000;

    const OPTIONS: &'static str = "schema=NAME, connections=NUMBER, lock_timeout_ms=NUMBER, statement_timeout_ms=NUMBER, \
        connect_timeout_ms=NUMBER, wait_timeout_ms=NUMBER, long_timeout_ms=NUMBER, idle_timeout_ms=NUMBER, hint_interval_ms=NUMBER, poll_interval_ms=NUMBER, \
        listen=ADDRESS|off, pooler=transaction, migrate=true|false, partitions=NUMBER, isolation=database|none, and of the driver sslmode, sslrootcert, \
        sslcert, sslkey, host, port, dbname, user, password, application_name";

    /// Returns options for a store at an address:
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME&connections=NUMBER&…`. `postgresql://` means the same. A
    /// host that begins with `/` (written `%2F`), or the option `host`, names the folder of a socket.
    ///
    /// Of several servers, `postgres://USER@HOST1,HOST2:PORT2/DATABASE`, the store uses the first that accepts writes, and looks
    /// for another one when that has failed or accepts reads only.
    ///
    /// A connection to another machine is encrypted or refused, unless the option `sslmode` says otherwise. The certificate of the
    /// server is checked only with `sslmode=verify-full`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the text is not such an address, or has an unknown option. The error does not repeat the address,
    /// which may have a password.
    pub fn from_url(url: &str) -> Result<Self> {
        let (servers, own) = Servers::from_url(url)?;
        own.into_iter().try_fold(Self::of(servers), |config, (name, value)| config.with_option(&name, &value))
    }

    /// Returns options for a store that connects with these options. The store logs no statements, whatever the options
    /// say.
    pub fn new(options: PgConnectOptions) -> Self {
        Self::of(Servers::one(options))
    }

    /// Returns options for a store beside a host's own pool, with the same options: up to 8 connections more. The store uses
    /// none of the pool, so that neither waits for the other.
    pub fn with_pool(pool: &PgPool) -> Self {
        Self::new(PgConnectOptions::clone(&pool.connect_options()))
            .with_connections(Self::DEFAULT_CONNECTIONS_BESIDE_A_POOL)
    }

    fn of(servers: Servers) -> Self {
        Self {
            servers,
            schema: Self::DEFAULT_SCHEMA.to_owned(),
            connections: Self::DEFAULT_CONNECTIONS,
            lock_timeout: Self::DEFAULT_LOCK_TIMEOUT,
            statement_timeout: Self::DEFAULT_STATEMENT_TIMEOUT,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            wait_timeout: Self::DEFAULT_WAIT_TIMEOUT,
            long_timeout: Self::DEFAULT_LONG_TIMEOUT,
            idle_timeout: Self::DEFAULT_IDLE_TIMEOUT,
            hint_interval: Self::DEFAULT_HINT_INTERVAL,
            poll_interval: Self::DEFAULT_POLL_INTERVAL,
            migrate: false,
            partitions: None,
            isolation: Isolation::Database,
            is_pooled: false,
            effects: Effects::default(),
            listen: Listen::Same,
        }
    }

    /// Registers the addresses `postgres://…` and `postgresql://…` in the registry.
    pub fn register(registry: &mut Registry) {
        for scheme in ["postgres", "postgresql"] {
            registry.register(scheme, &format!("{scheme}://USER@HOST/DATABASE"), Self::from_url);
        }
    }

    /// Sets an option by its name in an address.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the option is unknown or its value is invalid.
    ///
    /// ```
    /// use agent_storage_postgres::PostgresConfig;
    ///
    /// let config = PostgresConfig::from_url("postgres://localhost/agents")?;
    /// let config = config.with_option("lock_timeout_ms", "2000")?;
    /// assert!(config.with_option("schema", "not a name").is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn with_option(self, name: &str, value: &str) -> Result<Self> {
        let bad = || {
            let value = quoted(value);
            Error::invalid(format!("invalid value {value} for option {name}; supported: {}", Self::OPTIONS))
        };
        let time = || {
            let time = value.parse().ok().map(Duration::from_millis);
            time.filter(|time| !time.is_zero() && *time <= Self::MAX_TIMEOUT).ok_or_else(bad)
        };
        match name {
            "schema" => self.with_schema(value),
            "connections" => {
                let most = value.parse().ok().filter(|most| (1..=Self::MAX_CONNECTIONS).contains(most));
                Ok(self.with_connections(most.ok_or_else(bad)?))
            }
            "lock_timeout_ms" => Ok(self.with_lock_timeout(time()?)),
            "statement_timeout_ms" => Ok(self.with_statement_timeout(time()?)),
            "connect_timeout_ms" => Ok(self.with_connect_timeout(time()?)),
            "wait_timeout_ms" => Ok(self.with_wait_timeout(time()?)),
            "long_timeout_ms" => Ok(self.with_long_timeout(time()?)),
            "idle_timeout_ms" => Ok(self.with_idle_timeout(time()?)),
            "hint_interval_ms" => Ok(self.with_hint_interval(time()?)),
            "poll_interval_ms" => Ok(self.with_poll_interval(time()?)),
            "listen" if value == "off" => Ok(self.without_listener()),
            "listen" => Ok(Self { listen: Self::from_url(value)?.listen_here(), ..self }),
            "pooler" if value == "transaction" => Ok(self.with_transaction_pooler()),
            "pooler" => Err(bad()),
            "isolation" => match value {
                "database" => Ok(self.with_isolation(Isolation::Database)),
                "none" => Ok(self.with_isolation(Isolation::None)),
                _ => Err(bad()),
            },
            "partitions" => {
                let count = value.parse().ok().filter(|count| (1..=Self::MAX_PARTITIONS).contains(count));
                Ok(self.with_partitions(count.ok_or_else(bad)?))
            }
            "migrate" => Ok(self.with_migrate(value.parse().map_err(|_| bad())?)),
            _ => {
                Err(Error::invalid(format!("unknown option {}; supported: {}", quoted(name), Self::OPTIONS)))
            }
        }
    }

    /// Sets the name of the schema that has the tables: `agent` by default.
    ///
    /// # Errors
    ///
    /// `InvalidInput` unless the name has 1 to 56 characters, of `a` to `z`, digits and `_`, and begins with no digit.
    pub fn with_schema(mut self, schema: &str) -> Result<Self> {
        let is_name = (1..=56).contains(&schema.len())
            && schema.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            && !schema.starts_with(|first: char| first.is_ascii_digit());
        if !is_name || schema.starts_with("pg_") {
            let text =
                "is no name of a schema; give 1 to 56 lower-case letters, digits and `_`, not `pg_` first";
            return Err(Error::invalid(format!("{} {text}", quoted(schema))));
        }
        schema.clone_into(&mut self.schema);
        Ok(self)
    }

    setters! {
        /// Sets the limit on connections, from 1 to 1,000: 16 by default.
        pub fn with_connections(most: usize) => connections = most.clamp(1, Self::MAX_CONNECTIONS);

        /// Sets how long a statement waits for a lock of another transaction: 5 seconds by default, at most a day. Then it
        /// fails with `Unavailable`.
        pub fn with_lock_timeout(timeout: Duration) => lock_timeout = timeout.clamp(Duration::from_millis(1), Self::MAX_TIMEOUT);

        /// Sets how long a statement may take: 10 seconds by default, at most a day. If the server does not answer for a
        /// second longer, the connection counts as broken.
        pub fn with_statement_timeout(timeout: Duration) => statement_timeout = timeout.clamp(Duration::from_millis(1), Self::MAX_TIMEOUT);

        /// Sets how long making a connection may take: 5 seconds by default.
        pub fn with_connect_timeout(timeout: Duration) => connect_timeout = timeout.min(Self::MAX_TIMEOUT);

        /// Sets how long a call waits for a connection of the store: 10 seconds by default.
        pub fn with_wait_timeout(timeout: Duration) => wait_timeout = timeout.min(Self::MAX_TIMEOUT);

        /// Sets how long a statement may take that reads or changes all of a tenant or a session, for deletions of tenants, purges,
        /// checks and rebuilds: an hour by default, at most a day. It is never less than the limit on other statements.
        pub fn with_long_timeout(timeout: Duration) => long_timeout = timeout.min(Self::MAX_TIMEOUT);

        /// Sets after which time a connection that nobody uses is closed: 5 minutes by default, at most a day. It is closed before
        /// one and a half times that time have passed.
        pub fn with_idle_timeout(timeout: Duration) => idle_timeout = timeout.clamp(Duration::from_millis(1), Self::MAX_TIMEOUT);

        /// Sets the time for which changes are collected before other stores are told of them: 10 ms by default, at most a
        /// minute.
        pub fn with_hint_interval(interval: Duration) => hint_interval = interval.clamp(Duration::from_millis(1), Duration::from_secs(60));

        /// Sets how often a caller that waits for a change reads the session by itself while the store listens: every 5
        /// seconds by default. So it finds the changes of a process that ended before it told others.
        pub fn with_poll_interval(interval: Duration) => poll_interval = interval.clamp(Duration::from_millis(1), Self::MAX_TIMEOUT);

        /// Sets where the store listens for changes by other stores: at the server itself, if the store's own address is that of a
        /// pooler, which passes none on. Opening refuses a place at which nothing is heard of the store.
        pub fn with_listener(options: PgConnectOptions) => listen = Self::new(options).listen_here();

        /// Sets that the store does not listen: a caller that waits for a change reads the session at least twice a second.
        pub fn without_listener() => listen = Listen::Nowhere;

        /// Sets that the address is that of a pooler in transaction mode, as PgBouncer has it, which gives each transaction another
        /// connection of the server. Each call is then a transaction of four round trips, and no statement stays prepared. Such a
        /// pooler passes no changes on, so that the store does not listen unless [it is told where](Self::with_listener). Opening refuses such a pooler without this.
        pub fn with_transaction_pooler() => is_pooled = true;

        /// Sets whether PostgreSQL itself must keep tenants and owners apart by row security, as it does by default. With
        /// [`Isolation::None`] the store opens as a superuser and as a user with BYPASSRLS, too, whom no policy binds: then only
        /// this library keeps them apart, and [`capabilities`](agent_core::SessionStore::capabilities) says so. For other users
        /// it makes no difference.
        pub fn with_isolation(isolation: Isolation) => isolation = isolation;

        /// Sets whether opening creates the tables, and the roles if it may, if there are none: false by default. See
        /// [the roles](crate#roles).
        pub fn with_migrate(migrate: bool) => migrate = migrate;

        /// Sets in how many partitions the events are, from 1 to 1,024, when the tables are created; later the number never changes, and
        /// opening refuses another one with `InvalidInput`. By default new tables have none, which is the same as 1, and opening takes
        /// what there is. Partitions are for stores of more than some 10^8 events, whose single table the server would vacuum and
        /// reindex for too long. They make commits slower, and lists of all sessions with events, as for checks and rebuilds,
        /// read each of them.
        pub fn with_partitions(count: u32) => partitions = Some(count.clamp(1, Self::MAX_PARTITIONS));

        /// Sets the clock and the randomness of the store, for tests.
        pub fn with_effects(effects: Effects) => effects = effects;
    }

    /// Returns the name of the schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    fn listen_here(self) -> Listen {
        Listen::At(Box::new(self.servers))
    }

    /// Returns the servers at which the store listens; `None` if it does not listen.
    pub(crate) fn listener(&self) -> Option<&Servers> {
        match &self.listen {
            Listen::Same => (!self.is_pooled).then_some(&self.servers),
            Listen::At(servers) => Some(servers),
            Listen::Nowhere => None,
        }
    }

    /// Returns the servers at which the store listens, if they have an address of their own.
    pub(crate) fn listens_elsewhere(&self) -> Option<&Servers> {
        match &self.listen {
            Listen::At(servers) => Some(servers),
            Listen::Same | Listen::Nowhere => None,
        }
    }

    /// Names the store in errors, without user and password.
    pub(crate) fn place(&self) -> String {
        let servers = &self.servers;
        format!("schema {} of database {} on {}", self.schema, servers.database(), servers.hosts())
    }
}

impl fmt::Display for PostgresConfig {
    /// Formats the address without user, password and options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (servers, schema) = (&self.servers, &self.schema);
        let hosts = servers.hosts().replace('/', "%2F");
        write!(f, "postgres://{hosts}/{}?schema={schema}", servers.database())
    }
}

impl fmt::Debug for PostgresConfig {
    /// Formats the options without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("place", &self.place())
            .field("connections", &self.connections)
            .field("lock_timeout", &self.lock_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("migrate", &self.migrate)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_named_by_their_folder() {
        for url in ["postgres:///x?host=/run/pg&port=7&user=a", "postgres://a@%2Frun%2Fpg:7/x"] {
            let config = PostgresConfig::from_url(url).unwrap();
            assert_eq!(config.place(), "schema agent of database x on /run/pg:7", "{url}");
            let shown = config.to_string();
            assert_eq!(shown, "postgres://%2Frun%2Fpg:7/x?schema=agent", "{url}");
            assert_eq!(PostgresConfig::from_url(&shown).unwrap().place(), config.place());
        }
    }
}
