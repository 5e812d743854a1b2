//! An emulated GPU for programs in other languages: reads one command per line from stdin and writes one answer each to stdout.
//!
//!     load PATH                             → ok
//!     upload BYTES (then so many bytes)     → ok ADDRESS
//!     download ADDRESS BYTES                → ok (then so many bytes)
//!     free ADDRESS                          → ok
//!     launch KERNEL BLOCKS ITEMS ARGUMENTS  → ok INSTRUCTIONS MICROSECONDS
//!
//! ARGUMENTS is the argument buffer in hexadecimal. The answer to a failed command begins with `error`. Code
//! objects stay loaded; of kernels with the same name the last loaded one is launched. `GCNRUN_ORDER=reversed` reverses the
//! order of blocks and waves.

use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::time::Instant;

use gcnrun::{Checks, Kind, Launch, Memory, Order, Program};

fn main() -> Result<(), Box<dyn Error>> {
    let memory = Memory::new();
    let mut programs = Vec::new();
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let words: Vec<_> = line.split_whitespace().collect();
        match answer(&words, &memory, &mut programs, &mut input) {
            Ok((text, bytes)) => {
                writeln!(output, "ok{text}")?;
                output.write_all(&bytes)?;
            }
            Err(error) => writeln!(output, "error {}", error.to_string().replace('\n', " | "))?,
        }
        output.flush()?;
        line.clear();
    }
    Ok(())
}

type Answer = Result<(String, Vec<u8>), Box<dyn Error>>;

fn answer(words: &[&str], memory: &Memory, programs: &mut Vec<Program>, input: &mut impl Read) -> Answer {
    match words {
        ["load", path] => {
            programs.push(Program::load(memory, 0, &fs::read(path)?)?);
            Ok((String::new(), Vec::new()))
        }
        ["upload", bytes] => {
            let mut data = vec![0; bytes.parse()?];
            input.read_exact(&mut data)?;
            let address = memory.allocate(data.len().max(1) as u64, Kind::Device(0), 256)?;
            memory.write(address, &data).map_err(|fault| fault.to_string())?;
            Ok((format!(" {address}"), Vec::new()))
        }
        ["download", address, bytes] => {
            let mut data = vec![0; bytes.parse()?];
            memory
                .read(address.parse()?, &mut data)
                .map_err(|fault| fault.to_string())?;
            Ok((String::new(), data))
        }
        ["free", address] => {
            memory.free(address.parse()?)?;
            Ok((String::new(), Vec::new()))
        }
        ["launch", kernel, blocks, items, arguments] => {
            let program = programs
                .iter()
                .rev()
                .find(|program| program.kernel(kernel).is_some());
            let program = program.ok_or_else(|| format!("no kernel {kernel} is loaded"))?;
            let bytes =
                (0..arguments.len() / 2).map(|i| u8::from_str_radix(&arguments[2 * i..2 * i + 2], 16));
            let reversed = env::var("GCNRUN_ORDER").is_ok_and(|order| order == "reversed");
            let launch = Launch {
                kernel,
                grid: [blocks.parse()?, 1, 1],
                block: [items.parse()?, 1, 1],
                dynamic_lds: 0,
                arguments: &bytes.collect::<Result<Vec<_>, _>>()?,
                order: if reversed { Order::Reversed } else { Order::Forward },
                options: Checks::default(),
            };
            let start = Instant::now();
            let statistics = program.launch(&launch)?;
            Ok((
                format!(" {} {}", statistics.instructions, start.elapsed().as_micros()),
                Vec::new(),
            ))
        }
        _ => Err(format!("no command: {}", words.join(" ")).into()),
    }
}
