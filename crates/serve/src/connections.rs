//! The table of open connections: the share of each client, and when a connection must end.
//!
//! A connection ends if one of these is true:
//!
//! - It brings no authorised request in time.
//! - It is idle.
//! - It receives more than its requests account for.
//! - The table is full, and its client holds the most connections.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Notify, Semaphore};

use super::client::Client;
use super::closed::Closed;
use super::metrics::Metrics;

/// Bytes that a connection may receive beyond what its requests account for: PING, SETTINGS, WINDOW_UPDATE, refused requests.
///
/// It covers a window of HTTP/2 that a client had filled when its request was refused.
const ALLOWANCE_BYTES: u64 = 2 << 20;

/// TLS handshakes of one client at once: each takes a millisecond of a thread that all connections share.
const MAX_HANDSHAKES: usize = 4;

/// Bytes per second by which a used allowance grows again: a thousand pings.
const REFILL_BYTES_PER_SECOND: u64 = 16 << 10;

/// Bytes that an authorised request accounts for in addition to its body.
const REQUEST: u64 = 16 << 10;

/// Maximum bytes of an announced body that count before they are read.
const MAX_ANNOUNCED_BYTES: u64 = 1 << 20;

/// Table of the open connections.
#[derive(Debug)]
pub(super) struct Table {
    most: usize,
    metrics: Arc<Metrics>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, (Client, Arc<Connection>)>,
    by_client: HashMap<Client, OfClient>,
}

/// State of a client in the table.
#[derive(Debug)]
struct OfClient {
    connections: usize,
    /// Permits for TLS handshakes.
    handshakes: Arc<Semaphore>,
}

/// A place in the table, which is freed on drop.
#[derive(Debug)]
pub(super) struct Place {
    table: Arc<Table>,
    id: u64,
    pub(super) connection: Arc<Connection>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.open.lock().remove(self.id);
        self.table.metrics.connections.dec();
    }
}

impl Table {
    pub(super) fn new(most: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            most,
            metrics,
            open: Mutex::default(),
        })
    }

    /// Gives a connection a place. If the table is full, a connection of the client with the most connections
    /// is displaced, or there is no place.
    pub(super) fn admit(self: &Arc<Self>, peer: SocketAddr, local: Option<SocketAddr>) -> Option<Place> {
        let client = Client::from(peer.ip());
        let mut open = self.open.lock();
        if open.connections.len() >= self.most {
            let displaced = open.displaced_by(client, self.most)?;
            let (_, connection) = open.remove(displaced)?;
            connection.displace();
            self.metrics.closed_connection(Closed::Displaced);
        }
        let id = open.next;
        open.next += 1;
        let of_client = open.by_client.entry(client).or_insert_with(|| OfClient {
            connections: 0,
            handshakes: Arc::new(Semaphore::new(MAX_HANDSHAKES)),
        });
        of_client.connections += 1;
        let connection = Arc::new(Connection::new(local, of_client.handshakes.clone()));
        open.connections.insert(id, (client, connection.clone()));
        self.metrics.connections.inc();
        Some(Place {
            table: self.clone(),
            id,
            connection,
        })
    }
}

impl Open {
    fn remove(&mut self, id: u64) -> Option<(Client, Arc<Connection>)> {
        let removed = self.connections.remove(&id)?;
        if let Some(of_client) = self.by_client.get_mut(&removed.0) {
            of_client.connections -= 1;
            if of_client.connections == 0 {
                self.by_client.remove(&removed.0);
            }
        }
        Some(removed)
    }

    /// Returns the connection that gives way to `client`.
    ///
    /// - If `client` has less than its share of the table and another client more, it is a connection of the
    ///   client with the most connections. The longest idle one is displaced, or the latest one if none is
    ///   idle.
    /// - Otherwise it is the longest idle connection of a client that has at least as many connections as
    ///   `client`.
    fn displaced_by(&self, client: Client, most: usize) -> Option<u64> {
        let count = |client: &Client| self.by_client.get(client).map_or(0, |of| of.connections);
        let own = count(&client);
        let clients = self.by_client.len() + usize::from(own == 0);
        let share = (most / clients).max(1);
        if let Some((largest, of_largest)) = self.by_client.iter().max_by_key(|(_, of)| of.connections)
            && of_largest.connections > share
            && own < share
        {
            let of_largest = self.connections.iter().filter(|(_, (owner, _))| owner == largest);
            let ids = of_largest.clone().map(|(id, _)| *id);
            let idle = of_largest.filter_map(|(id, (_, connection))| Some((connection.idle_since()?, *id)));
            // If none is idle, the latest connection has done the least.
            return idle.min().map(|(_, id)| id).or(ids.max());
        }
        let idle = self.connections.iter().filter_map(|(id, (owner, connection))| {
            let count = count(owner);
            let since = connection.idle_since().filter(|_| count >= own)?;
            Some((Reverse(count), since, *id))
        });
        idle.min().map(|(_, _, longest)| longest)
    }
}

/// State of a connection, stored in the extensions of its requests.
#[derive(Debug)]
pub(super) struct Connection {
    /// Local address.
    pub(super) local: Option<SocketAddr>,
    /// Permits for TLS handshakes of the client.
    pub(super) handshakes: Arc<Semaphore>,
    state: Mutex<State>,
    displaced: Notify,
}

#[derive(Debug)]
struct State {
    begin: Instant,
    is_authorized: bool,
    /// Number of requests whose answers have not ended.
    open: usize,
    idle_since: Instant,
    allowance: Allowance,
}

/// A token bucket of bytes.
#[derive(Debug)]
struct Allowance {
    left: u64,
    at: Instant,
}

impl Allowance {
    fn new(at: Instant) -> Self {
        Self {
            left: ALLOWANCE_BYTES,
            at,
        }
    }

    /// Takes `bytes` at `now`. Returns false if fewer are left.
    fn take(&mut self, bytes: u64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_millis() as u64;
        let refill = passed.saturating_mul(REFILL_BYTES_PER_SECOND) / 1000;
        if refill > 0 {
            self.at = now;
            self.give(refill);
        }
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    fn give(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes).min(ALLOWANCE_BYTES);
    }
}

impl Connection {
    fn new(local: Option<SocketAddr>, handshakes: Arc<Semaphore>) -> Self {
        let now = Instant::now();
        Self {
            local,
            handshakes,
            state: Mutex::new(State {
                begin: now,
                is_authorized: false,
                open: 0,
                idle_since: now,
                allowance: Allowance::new(now),
            }),
            displaced: Notify::new(),
        }
    }

    fn displace(&self) {
        self.displaced.notify_one();
    }

    /// Completes when another connection has taken the place.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }

    /// Returns the time since when the connection has had no open request. `None` if it has one.
    fn idle_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        (state.open == 0).then_some(state.idle_since)
    }

    /// Begins a request, which is open until the result is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> OpenRequest {
        self.state.lock().open += 1;
        OpenRequest(self.clone())
    }

    /// Notes that a request had the server's token, or that the server needs none. `announced` is the length
    /// of its body.
    pub(super) fn authorize(&self, announced: u64) {
        let mut state = self.state.lock();
        state.is_authorized = true;
        state.allowance.give(REQUEST + announced.min(MAX_ANNOUNCED_BYTES));
    }

    fn credit(&self, bytes: u64) {
        self.state.lock().allowance.give(bytes);
    }

    /// Completes after `header_time` without an authorised request, or after `idle_time` if one came earlier.
    pub(super) async fn expired(&self, header_time: Duration, idle_time: Duration) -> Closed {
        loop {
            let now = Instant::now();
            let (since, limit, reason) = {
                let state = self.state.lock();
                match (state.is_authorized, state.open) {
                    (false, _) => (state.begin, header_time, Closed::Unauthorized),
                    (true, 0) => (state.idle_since, idle_time, Closed::Idle),
                    (true, _) => (now, idle_time.max(Duration::from_millis(1)), Closed::Idle),
                }
            };
            let passed = now.saturating_duration_since(since);
            if passed >= limit {
                return reason;
            }
            tokio::time::sleep(limit - passed).await;
        }
    }

    /// Completes after `time` without an open request, counted from now.
    pub(super) async fn quiet(&self, time: Duration) {
        let begin = Instant::now();
        loop {
            let now = Instant::now();
            let since = self.idle_since().map_or(now, |since| since.max(begin));
            let passed = now.saturating_duration_since(since);
            if passed >= time {
                return;
            }
            tokio::time::sleep(time - passed).await;
        }
    }
}

/// A request whose answer has not ended.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<Connection>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.open -= 1;
        state.idle_since = Instant::now();
    }
}

/// A body whose data add to the allowance of its connection. In the body of an answer, `request` stays open
/// until both are dropped.
#[derive(Debug)]
pub(super) struct Counted<B> {
    body: B,
    connection: Arc<Connection>,
    request: Option<OpenRequest>,
}

impl<B> Counted<B> {
    pub(super) fn request(body: B, connection: Arc<Connection>) -> Self {
        Self {
            body,
            connection,
            request: None,
        }
    }

    pub(super) fn answer(body: B, connection: Arc<Connection>, request: OpenRequest) -> Self {
        Self {
            body,
            connection,
            request: Some(request),
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let bytes = data.len() as u64;
            // Frames of a few bytes cost more than they bring. A client acknowledges an answer by WINDOW_UPDATE.
            self.connection.credit(match self.request {
                None => 2 * bytes,
                Some(_) => 64 + bytes / 16,
            });
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A reader whose bytes count for its connection. It fails if they exceed what the requests account for.
#[derive(Debug)]
pub(super) struct Received<R> {
    reader: R,
    connection: Arc<Connection>,
    metrics: Arc<Metrics>,
}

impl<R> Received<R> {
    pub(super) fn new(reader: R, connection: Arc<Connection>, metrics: Arc<Metrics>) -> Self {
        Self {
            reader,
            connection,
            metrics,
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Received<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(context, buffer))?;
        let bytes = (buffer.filled().len() - before) as u64;
        let mut state = self.connection.state.lock();
        if !state.allowance.take(bytes, Instant::now()) {
            drop(state);
            self.metrics.closed_connection(Closed::Flood);
            let reason = "more was received than the requests account for";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::QuotaExceeded, reason)));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(client: u8) -> SocketAddr {
        ([10, 0, 0, client], 1000).into()
    }

    fn is_displaced(place: &Place) -> bool {
        let open = place.table.open.lock();
        !open.connections.contains_key(&place.id)
    }

    fn table(most: usize) -> Arc<Table> {
        Table::new(most, Metrics::new())
    }

    #[test]
    fn the_client_with_the_most_connections_makes_room() {
        let table = table(4);
        let hoarded: Vec<Place> = (0..3).map(|_| table.admit(address(1), None).unwrap()).collect();
        let other = table.admit(address(2), None).unwrap();
        let handshakes = |place: &Place| place.connection.handshakes.clone();
        assert!(Arc::ptr_eq(&handshakes(&hoarded[0]), &handshakes(&hoarded[1])));
        assert!(!Arc::ptr_eq(&handshakes(&hoarded[0]), &handshakes(&other)));
        // The first has just been used, so the second has been idle for longest.
        drop(hoarded[0].connection.begin_request());
        let newcomer = table.admit(address(3), None).unwrap();
        let displaced: Vec<bool> = hoarded.iter().map(is_displaced).collect();
        assert_eq!(displaced, [false, true, false]);
        assert!(!is_displaced(&other) && !is_displaced(&newcomer));
        // A displaced connection does not free the place of another.
        drop(hoarded);
        assert_eq!(table.open.lock().connections.len(), 2);
        assert_eq!(table.open.lock().by_client.len(), 2);
        drop((other, newcomer));
        assert!(table.open.lock().by_client.is_empty());
        assert_eq!(table.metrics.connections.get(), 0);
    }

    #[test]
    fn a_busy_connection_is_displaced_only_for_a_client_with_less() {
        let table = table(4);
        let busy: Vec<Place> = (0..4).map(|_| table.admit(address(1), None).unwrap()).collect();
        let open: Vec<OpenRequest> = busy
            .iter()
            .map(|place| place.connection.begin_request())
            .collect();
        assert!(table.admit(address(1), None).is_none());
        let second = table.admit(address(2), None).unwrap();
        let _request = second.connection.begin_request();
        assert!(is_displaced(&busy[3]) && !is_displaced(&busy[0]));
        // Each client has its share of the table, or more than it would take.
        let third = table.admit(address(2), None).unwrap();
        let _third = third.connection.begin_request();
        assert!(table.admit(address(2), None).is_none());
        // The share of each of three clients is one.
        let fourth = table.admit(address(3), None).unwrap();
        let _fourth = fourth.connection.begin_request();
        assert!(table.admit(address(3), None).is_none());
        drop(open);
        assert!(table.admit(address(4), None).is_some());
    }

    #[test]
    fn idle_connections_of_others_do_not_give_way_before_a_hoarders() {
        let table = table(6);
        let kept = table.admit(address(9), None).unwrap();
        let busy: Vec<Place> = (0..5).map(|_| table.admit(address(1), None).unwrap()).collect();
        let _open: Vec<OpenRequest> = busy
            .iter()
            .map(|place| place.connection.begin_request())
            .collect();
        // The share of each of three clients is two.
        let newcomer = table.admit(address(2), None).unwrap();
        assert!(!is_displaced(&kept) && !is_displaced(&newcomer) && is_displaced(&busy[4]));
    }

    #[test]
    fn an_allowance_is_used_refilled_and_credited() {
        let begin = Instant::now();
        let mut allowance = Allowance::new(begin);
        assert!(allowance.take(ALLOWANCE_BYTES, begin));
        assert!(!allowance.take(1, begin));
        assert!(allowance.take(REFILL_BYTES_PER_SECOND, begin + Duration::from_secs(1)));
        assert!(!allowance.take(1, begin + Duration::from_secs(1)));
        allowance.give(u64::MAX);
        assert!(allowance.take(ALLOWANCE_BYTES, begin) && !allowance.take(1, begin));
    }

    #[test]
    fn a_connection_expires_without_a_token_or_a_request() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(600));
        runtime.unwrap().block_on(async {
            let connection = Arc::new(Connection::new(None, Arc::new(Semaphore::new(MAX_HANDSHAKES))));
            // Requests without the token no longer keep the connection.
            let request = connection.begin_request();
            assert_eq!(connection.expired(short, long).await, Closed::Unauthorized);
            connection.authorize(0);
            let open = tokio::time::timeout(2 * short, connection.expired(short, short));
            assert!(open.await.is_err(), "a request is open");
            drop(request);
            assert_eq!(connection.expired(long, short).await, Closed::Idle);
            connection.quiet(short).await;
        });
    }
}
