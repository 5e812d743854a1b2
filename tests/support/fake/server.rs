//! Requests to a server on the fake GPU.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::server::{Response, Running, sample, wait_until};

pub(crate) fn infer(running: &Running) -> Response {
    let headers = [("Inference-Header-Content-Length", "0")];
    running.post("/v2/models/vit/infer", &headers, &sample(7))
}

/// Returns the answers of clients that send one request after the other: a quarter of `enough` before the
/// fault, the rest after it.
pub(crate) fn load(running: &Running, enough: usize, fault: impl FnOnce()) -> Vec<Response> {
    const CLIENTS: usize = 8;
    let answers = Mutex::new(Vec::new());
    let answered = || answers.lock().unwrap().len();
    let end = AtomicUsize::new(usize::MAX);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while answered() < end.load(Ordering::SeqCst) {
                    let answer = infer(running);
                    answers.lock().unwrap().push(answer);
                }
            });
        }
        wait_until("clients are answered", || answered() >= enough / 4);
        fault();
        end.store(answered() + enough - enough / 4, Ordering::SeqCst);
    });
    answers.into_inner().unwrap()
}

/// Returns the number of answers with 503. The others must have this body.
pub(crate) fn refused(answers: Vec<Response>, expected: &[u8]) -> usize {
    let mut refused = 0;
    for answer in answers {
        match answer.status {
            200 => assert_eq!(answer.body, expected),
            _ => {
                let (status, message) = answer.error();
                assert_eq!(status, 503, "{message}");
                refused += 1;
            }
        }
    }
    refused
}
