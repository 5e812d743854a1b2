//! Memory account of requests and answers, from the first byte of a request until its client has read the
//! answer.
//!
//! Each client has a share. It may take more only while it holds at most as much as is free. So one client
//! gets at most half of the account, and two greedy clients get a third each. The request of another client
//! still finds memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::client::Client;
use super::failure::{Failure, Kind};
use super::metrics::Metrics;

/// The memory of all requests and answers.
#[derive(Clone, Debug)]
pub(super) struct Account(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: usize,
    state: Mutex<State>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    clients: HashMap<Option<Client>, usize>,
}

impl Account {
    pub(super) fn new(total: usize, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared {
            total,
            state: Mutex::default(),
            metrics,
        }))
    }

    /// Returns the maximum bytes of one client, and so of one request or answer.
    pub(super) fn share(&self) -> usize {
        self.0.share()
    }

    /// Begins a charge of a client. All unknown clients share one account.
    pub(super) fn charge(&self, client: Option<Client>) -> Charge {
        Charge(Some(Arc::new(Held {
            shared: self.0.clone(),
            client,
            bytes: Mutex::new(0),
        })))
    }

    /// Returns the bytes in use.
    pub(super) fn used(&self) -> usize {
        self.0.state.lock().used
    }
}

impl Shared {
    fn share(&self) -> usize {
        self.total / 2
    }

    fn take(&self, client: Option<Client>, bytes: usize) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let held = state.clients.get(&client).copied().unwrap_or_default();
        let (held, used) = (held.saturating_add(bytes), state.used.saturating_add(bytes));
        if held > self.total.saturating_sub(used) {
            let reason = "the server has no memory for the request now: its clients share --body-memory. Try again later";
            return Err(Failure::new(Kind::Overloaded(Duration::from_secs(1)), reason));
        }
        state.used = used;
        state.clients.insert(client, held);
        drop(state);
        self.metrics.body_bytes.inc_by(bytes as i64);
        Ok(())
    }

    fn give_back(&self, client: Option<Client>, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.used -= bytes;
        if let Some(held) = state.clients.get_mut(&client) {
            *held -= bytes;
            if *held == 0 {
                state.clients.remove(&client);
            }
        }
        drop(state);
        self.metrics.body_bytes.dec_by(bytes as i64);
    }
}

/// Memory of a request or an answer, held until the last clone is dropped. The default belongs to no account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charge(Option<Arc<Held>>);

#[derive(Debug)]
struct Held {
    shared: Arc<Shared>,
    client: Option<Client>,
    bytes: Mutex<usize>,
}

impl Charge {
    /// Takes more memory.
    ///
    /// # Errors
    ///
    /// - [`Kind::TooLarge`] if it exceeds the share of a client even when everything is free.
    /// - [`Kind::Overloaded`] if it exceeds the share now.
    pub(super) fn grow(&self, bytes: usize) -> Result<(), Failure> {
        let Some(held) = self.0.as_ref().filter(|_| bytes > 0) else {
            return Ok(());
        };
        let mut sum = held.bytes.lock();
        let grown = sum.saturating_add(bytes);
        let share = held.shared.share();
        if grown > share {
            return Err(Failure::new(
                Kind::TooLarge,
                format!(
                    "the request takes {grown} bytes of memory, which exceeds {share}, half of --body-memory. Send less at once"
                ),
            ));
        }
        held.shared.take(held.client, bytes)?;
        *sum = grown;
        Ok(())
    }

    /// Releases what exceeds `bytes`.
    pub(super) fn shrink_to(&self, bytes: usize) {
        if let Some(held) = &self.0 {
            let mut sum = held.bytes.lock();
            held.shared.give_back(held.client, sum.saturating_sub(bytes));
            *sum = bytes.min(*sum);
        }
    }

    /// Takes or releases memory until the charge has `bytes`.
    ///
    /// # Errors
    ///
    /// Errors of [`grow`](Self::grow).
    pub(super) fn resize(&self, bytes: usize) -> Result<(), Failure> {
        self.shrink_to(bytes);
        let sum = self.0.as_ref().map_or(bytes, |held| *held.bytes.lock());
        self.grow(bytes.saturating_sub(sum))
    }

    /// Begins another charge of the same client.
    pub(super) fn another(&self) -> Self {
        Self(self.0.as_ref().map(|held| {
            Arc::new(Held {
                shared: held.shared.clone(),
                client: held.client,
                bytes: Mutex::new(0),
            })
        }))
    }

    /// Returns `bytes` as a buffer whose slices keep this charge.
    pub(super) fn own(&self, bytes: Vec<u8>) -> Bytes {
        struct Owned {
            bytes: Vec<u8>,
            _charge: Charge,
        }

        impl AsRef<[u8]> for Owned {
            fn as_ref(&self) -> &[u8] {
                &self.bytes
            }
        }

        Bytes::from_owner(Owned {
            bytes,
            _charge: self.clone(),
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.give_back(self.client, *self.bytes.get_mut());
    }
}

/// Buffer that is charged as bytes arrive. It grows to at most twice the received bytes, and to no more than
/// is expected.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    charge: Charge,
}

/// Smallest growth of a [`Buffer`].
const LEAST_GROWTH: usize = 4 << 10;

impl Buffer {
    pub(super) fn new(charge: Charge) -> Self {
        Self {
            bytes: Vec::new(),
            charge,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends bytes. `expected` is the announced total.
    pub(super) fn push(&mut self, data: &[u8], expected: Option<usize>) -> Result<(), Failure> {
        let wanted = self.bytes.len() + data.len();
        let capacity = self.bytes.capacity();
        if wanted > capacity {
            let doubled = wanted.max(2 * capacity).max(LEAST_GROWTH);
            let grown = expected
                .map_or(doubled, |expected| doubled.min(expected))
                .max(wanted);
            self.charge.grow(grown - capacity)?;
            let more = self.bytes.try_reserve_exact(grown - self.bytes.len());
            more.map_err(|_| {
                let reason = "the system has no memory for the request now. Try again later";
                Failure::new(Kind::Overloaded(Duration::from_secs(1)), reason)
            })?;
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// Returns the bytes. Their slices keep the charge.
    pub(super) fn finish(self) -> Bytes {
        self.charge.own(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(host: u8) -> Option<Client> {
        Some(Client::from(std::net::IpAddr::from([10, 0, 0, host])))
    }

    fn is_shed(result: Result<(), Failure>) -> bool {
        matches!(result.unwrap_err().kind(), Kind::Overloaded(_))
    }

    #[test]
    fn one_client_gets_half_and_others_find_memory() {
        let account = Account::new(1200, Metrics::new());
        let [first, second] = [(); 2].map(|()| account.charge(client(1)));
        first.grow(500).unwrap();
        second.grow(100).unwrap();
        assert!(is_shed(second.grow(1)));
        let other = account.charge(None);
        other.grow(300).unwrap();
        assert!(is_shed(other.grow(1)));
        // A third client still gets memory.
        account.charge(client(3)).grow(150).unwrap();
        drop((first, second));
        other.grow(300).unwrap();
        drop(other);
        assert_eq!(account.used(), 0);
        assert_eq!(account.0.metrics.body_bytes.get(), 0);
    }

    #[test]
    fn what_no_share_holds_is_too_large() {
        let account = Account::new(1200, Metrics::new());
        let charge = account.charge(client(1));
        assert_eq!(charge.grow(601).unwrap_err().kind(), Kind::TooLarge);
        assert_eq!(charge.grow(usize::MAX).unwrap_err().kind(), Kind::TooLarge);
        charge.grow(600).unwrap();
        charge.shrink_to(100);
        assert_eq!(account.used(), 100);
        let slice = charge.own(vec![1, 2, 3]).slice(1..2);
        drop(charge);
        assert_eq!(account.used(), 100);
        drop(slice);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn a_buffer_counts_what_has_come_not_what_is_announced() {
        let account = Account::new(1 << 30, Metrics::new());
        let mut buffer = Buffer::new(account.charge(client(1)));
        for part in 1..=100 {
            buffer.push(&[7; 1000], Some(100_000)).unwrap();
            let used = account.used();
            assert!(used <= (2 * part * 1000).max(LEAST_GROWTH), "{part} {used}");
        }
        assert_eq!((buffer.len(), account.used()), (100_000, 100_000));
        let bytes = buffer.finish();
        assert_eq!((bytes.len(), account.used()), (100_000, 100_000));
        drop(bytes);
        assert_eq!(account.used(), 0);
    }
}
