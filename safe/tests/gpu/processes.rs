//! Ranks of several processes: this program again, started as a launcher would.

use std::env;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hip_safe::{Comm, CommOptions, DType, Device, NodeComm, Reduction, Rendezvous, Stream, World};

use super::{Absent, Check, ensure};

const LEN: usize = 1000;

/// Set in the processes that are ranks: what they are to do.
const ROLE: &str = "HIP_SAFE_TEST_ROLE";

/// The output of a process that has done it.
const DONE: &str = "rank is done";

/// Returns true if this process is a rank, after doing the work that it was started for.
fn is_rank(device: &Device) -> Result<bool, Box<dyn std::error::Error>> {
    let Ok(role) = env::var(ROLE) else {
        return Ok(false);
    };
    let world = World::from_env()?.ok_or("no launcher")?;
    let devices = device.runtime().devices()?;
    let timeout = Duration::from_secs(120);
    let (rank, ranks) = (world.rank(), world.size());
    let stream = devices[world.local_rank() % devices.len()].stream()?;
    let mut rendezvous = Rendezvous::new(world, timeout)?;
    if role.starts_with("nodes") {
        reduce_over_nodes(&stream, &mut rendezvous, &role)?;
        println!("{DONE}");
        return Ok(true);
    }
    let comm = Comm::join(&stream, &mut rendezvous, CommOptions::with_timeout(timeout))?;
    let mut buffer = stream.upload(&[rank as f32 + 1.0; LEN])?;
    comm.all_reduce_in_place(DType::F32, Reduction::Sum, &mut buffer)?;
    let sum = (ranks * (ranks + 1) / 2) as f32;
    ensure(buffer.read()? == [sum; LEN], || "the sum is wrong".into())?;
    if role == "leave" && rank == 1 {
        println!("{DONE}");
        // Without a word to the others, as if killed.
        std::process::exit(0);
    }
    if role == "leave" {
        let failed = comm
            .all_reduce_in_place(DType::F32, Reduction::Sum, &mut buffer)
            .and_then(|()| buffer.read());
        let text = failed.err().map(|error| error.to_string()).unwrap_or_default();
        ensure(
            text.contains(&format!("rank {rank} of {ranks}")) && text.contains("rank 1"),
            || format!("{text:?} does not name the ranks"),
        )?;
        println!("{DONE}: {text}");
        return Ok(true);
    }
    let mut all = stream.zeroed::<f32>(LEN * ranks)?;
    comm.all_gather(DType::F32, &buffer, &mut all)?;
    ensure(all.read()? == vec![sum; LEN * ranks], || "all-gather".into())?;
    println!("{DONE}");
    Ok(true)
}

/// All-reduces every dtype and reduction, in and out of place, with lengths that the ranks of a host do not divide. The values
/// are small integers, whose sums are exact in any order. The role says whether the ranks' hosts divide the all-reduces.
fn reduce_over_nodes(
    stream: &Stream,
    rendezvous: &mut Rendezvous,
    role: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let (rank, ranks) = (rendezvous.world().rank(), rendezvous.world().size());
    let options = CommOptions::with_timeout(Duration::from_secs(120));
    let comm = NodeComm::join(stream, rendezvous, options)?.hierarchical_from(64);
    let expected = (role == "nodes").then_some((2, ranks / 2));
    ensure(comm.nodes() == expected, || format!("{:?}", comm.nodes()))?;
    // The first is below the limit, the second has fewer elements than ranks are left over from.
    for len in [5, 16, 17, 4096, 10_007] {
        let value = |index: usize, rank: usize| ((index + 3 * rank) % 7) as f32;
        let values: Vec<f32> = (0..len).map(|index| value(index, rank)).collect();
        let all = |index| (0..ranks).map(move |rank| value(index, rank));
        let sums: Vec<f32> = (0..len).map(|index| all(index).sum()).collect();
        let largest: Vec<f32> = (0..len).map(|index| all(index).fold(0.0, f32::max)).collect();
        let source = stream.upload(&values)?;
        let mut target = stream.upload(&vec![f32::NAN; len])?;
        comm.all_reduce(DType::F32, Reduction::Sum, &source, &mut target)?;
        ensure(target.read()? == sums, || format!("{len}: sum"))?;
        ensure(source.read()? == values, || format!("{len}: the source"))?;
        let mut buffer = stream.upload(&values)?;
        comm.all_reduce_in_place(DType::F32, Reduction::Max, &mut buffer)?;
        ensure(buffer.read()? == largest, || format!("{len}: in place"))?;
        let mut means = stream.upload(&values)?;
        comm.all_reduce_in_place(DType::F32, Reduction::Mean, &mut means)?;
        let near = |(mean, sum): (&f32, &f32)| (mean - sum / ranks as f32).abs() < 1e-5;
        ensure(means.read()?.iter().zip(&sums).all(near), || {
            format!("{len}: mean")
        })?;
    }
    // An error before anything is submitted, at every rank.
    let (source, mut target) = (stream.zeroed::<f32>(64)?, stream.zeroed::<f32>(65)?);
    let wrong = comm.all_reduce(DType::F32, Reduction::Sum, &source, &mut target);
    ensure(wrong.is_err(), || "another length was accepted".into())?;
    Ok(())
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// The variables of a rank, and the arguments that make this program run the test again.
fn configure(command: &mut Command, test: &str, role: &str, rank: usize, ranks: usize, master: (&str, u16)) {
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("WORLD_SIZE", ranks.to_string())
        .env("MASTER_ADDR", master.0)
        .env("MASTER_PORT", master.1.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
}

/// Returns the output of each rank, once all have ended.
fn finish(ranks: Vec<Child>) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let outputs: Vec<_> = ranks.into_iter().map(Child::wait_with_output).collect();
    let mut texts = Vec::new();
    for (rank, output) in outputs.into_iter().enumerate() {
        let output = output?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure(output.status.success() && text.contains(DONE), || {
            format!("rank {rank}: {text}")
        })?;
        texts.push(text);
    }
    Ok(texts)
}

/// A rank's process needs a GPU of its own, which emulated ones always are.
fn enough(device: &Device, ranks: usize) -> Result<(), Box<dyn std::error::Error>> {
    let emulated = super::comm::is_emulated(device)?;
    if emulated || device.runtime().devices()?.len() >= ranks {
        Ok(())
    } else {
        Err(Absent("there are fewer GPUs than ranks").into())
    }
}

fn launch(test: &str, role: &str, ranks: usize) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    launch_on(test, role, &vec!["one"; ranks])
}

/// Starts a rank on each of the hosts, which are names.
fn launch_on(test: &str, role: &str, hosts: &[&str]) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let (port, ranks) = (free_port()?, hosts.len());
    let start = |rank: usize| {
        let mut command = Command::new(env::current_exe()?);
        configure(&mut command, test, role, rank, ranks, ("127.0.0.1", port));
        command.env("NCCL_HOSTID", hosts[rank]).spawn()
    };
    // The last first: the others have to wait for rank 0.
    let mut started = (0..ranks).rev().map(start).collect::<Result<Vec<_>, _>>()?;
    started.reverse();
    finish(started)
}

pub(crate) fn several(device: &Device) -> Check {
    if is_rank(device)? {
        return Ok("a rank".into());
    }
    enough(device, 3)?;
    launch("processes_communicate", "stay", 3)?;
    Ok("three processes".into())
}

pub(crate) fn lost(device: &Device) -> Check {
    if is_rank(device)? {
        return Ok("a rank".into());
    }
    if !super::comm::is_emulated(device)? {
        return Err(Absent("RCCL need not notice that a process of the same host has ended").into());
    }
    let texts = launch("a_process_that_ends_is_an_error_of_the_others", "leave", 2)?;
    ensure(texts[0].contains("its process has ended"), || texts[0].clone())?;
    Ok("rank 0 names rank 1".into())
}

pub(crate) fn nodes(device: &Device) -> Check {
    if is_rank(device)? {
        return Ok("a rank".into());
    }
    if !super::comm::is_emulated(device)? {
        return Err(Absent("RCCL takes ranks of one machine as of one host").into());
    }
    let test = "all_reduces_are_divided_among_hosts";
    for hosts in [["a", "a", "b", "b"], ["b", "a", "a", "b"]] {
        launch_on(test, "nodes", &hosts)?;
    }
    // Unequal hosts, and single ranks.
    launch_on(test, "nodes: one collective", &["a", "a", "b"])?;
    launch_on(test, "nodes: one collective", &["a", "b"])?;
    Ok("two hosts with two ranks each".into())
}

/// Two network namespaces with a cable between them simulate two hosts.
pub(crate) fn two_hosts(device: &Device) -> Check {
    if is_rank(device)? {
        return Ok("a rank".into());
    }
    if !super::comm::is_emulated(device)? {
        return Err(Absent("for emulated GPUs").into());
    }
    const SET_UP: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/netns && ip netns add a && ip netns add b && \
        ip link add va netns a type veth peer name vb netns b && \
        ip -n a addr add 10.9.0.1/24 dev va && ip -n b addr add 10.9.0.2/24 dev vb && \
        ip -n a link set va up && ip -n b link set vb up && \
        ip -n a link set lo up && ip -n b link set lo up";
    let permitted = Command::new("unshare")
        .args(["-rnm", "sh", "-c", SET_UP])
        .output();
    if !permitted.is_ok_and(|output| output.status.success()) {
        return Err(Absent("network namespaces are not permitted here, or iproute2 is missing").into());
    }
    let test = "hosts_communicate";
    let rank = |n: usize, namespace: &str| {
        format!(
            "RANK={n} LOCAL_RANK={} NCCL_HOSTID={namespace} ip netns exec {namespace} \"$0\" --exact {test} --nocapture \
             --test-threads=1 &",
            n % 2
        )
    };
    let ranks = ["a", "a", "b", "b"]
        .iter()
        .enumerate()
        .map(|(n, host)| rank(n, host));
    let script = format!("{SET_UP} && {{ {} wait; }}", ranks.collect::<String>());
    let mut command = Command::new("unshare");
    command
        .args(["-rnm", "sh", "-c", &script])
        .arg(env::current_exe()?);
    let output = command
        .env(ROLE, "nodes")
        .env("WORLD_SIZE", "4")
        .env("MASTER_ADDR", "10.9.0.1")
        .env("MASTER_PORT", "29500")
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure(text.matches(DONE).count() == 4, || text.clone().into_owned())?;
    Ok("two network namespaces with two ranks each".into())
}
