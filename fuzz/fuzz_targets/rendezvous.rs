//! What a stranger sends to rank 0's port. Rank 0 drops it, goes on waiting, and never counts it as a rank.

#![no_main]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hipvit::hip::{Rendezvous, World};
use hipvit_fuzz::AT_ONCE;
use libfuzzer_sys::fuzz_target;

const DAY: Duration = Duration::from_secs(86_400);

/// Rank 0 of two, and its address. The other rank never comes.
static ROOT: LazyLock<(JoinHandle<()>, SocketAddr)> = LazyLock::new(|| {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a port is free");
    let world = World::from_variables(|name| match name {
        "RANK" => Some("0".into()),
        "WORLD_SIZE" => Some("2".into()),
        "MASTER_ADDR" => Some("127.0.0.1".into()),
        "MASTER_PORT" => Some(address.port().to_string()),
        "TORCHELASTIC_RUN_ID" => Some("fuzz".into()),
        _ => None,
    });
    let world = world
        .expect("the variables are right")
        .expect("there is a launcher");
    let root = thread::spawn(move || {
        let outcome = Rendezvous::new(world, DAY);
        eprintln!("rank 0 stopped waiting: {:?}", outcome.map(|_| ()));
    });
    while TcpStream::connect(address).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
    (root, address)
});

fuzz_target!(|data: &[u8]| {
    let (root, address) = &*ROOT;
    let mut stream = TcpStream::connect(address).expect("rank 0 takes connections");
    stream
        .set_read_timeout(Some(AT_ONCE))
        .expect("a time limit can be set");
    // Rank 0 may close the connection before it has read all.
    let _ = stream.write_all(data);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    if let Err(error) = stream.take(1 << 20).read_to_end(&mut answer) {
        assert!(
            error.kind() != std::io::ErrorKind::WouldBlock,
            "rank 0 keeps a stranger's connection"
        );
    }
    assert!(!root.is_finished(), "a stranger ended the rendezvous");
});
