//! Texts of images on a GPU.

use std::thread;

use hipvit::{DType, Device, Session};
use hipvit_generate::{GenerateOptions, Generated, Sampling};
use hipvit_serve::ModelSource;
use serde_json::json;

use crate::support::generation::{CHAT, LENGTH, case, cases, chat, searched, tiled};
use crate::support::gpu::{device, dtypes};
use crate::support::server::{Running, options};

#[test]
fn texts_and_logits_are_those_of_transformers() {
    let Some((device, _shared)) = device() else { return };
    // Emulated GPUs take long. The other two Donuts differ in the encoder's windows, which the CPU's tests and those of Swin check, the other
    // two BLIPs in sizes.
    let others = ["donut_wide", "donut_stages", "blip_wide", "blip_eight"];
    for case in cases()
        .into_iter()
        .filter(|case| !others.contains(&case.name.as_str()))
    {
        for dtype in dtypes() {
            case.check_logits(device, dtype);
            if dtype == DType::F32 {
                // Captured steps too, in the second call.
                let mut generator = case.load(&Session::builder().device(device).batch(2));
                case.generate(&mut generator, &mut |_, _| {});
                case.generate(&mut generator, &mut |_, _| {});
                let searched = searched().into_iter().find(|searched| searched.name == case.name);
                searched.unwrap().check(&case, device, 3);
            }
        }
    }
}

#[test]
fn texts_about_tiles_are_those_of_transformers() {
    let Some((device, _shared)) = device() else { return };
    let case = &tiled()[0];
    for dtype in dtypes() {
        case.check_logits(device, dtype);
        if dtype == DType::F32 {
            case.check(&Session::builder().device(device).batch(3), 0);
        }
    }
}

/// The rules of one model punish repetitions, too.
#[test]
fn random_texts_are_those_of_the_cpu() {
    let Some((device, _shared)) = device() else { return };
    for name in ["trocr_base", "trocr_untied"] {
        let case = case(name);
        let sampled = |device: Device, top_k, top_p| -> Vec<Generated> {
            let mut generator = case.load(&Session::builder().device(device).batch(2));
            let options = GenerateOptions {
                sampling: Some(Sampling {
                    temperature: 1.5,
                    top_k,
                    top_p,
                    seed: 7,
                }),
                ..case.options()
            };
            generator
                .generate(&case.images(), &options, &mut |_, _| {})
                .unwrap()
        };
        let all = sampled(Device::Cpu, None, 1.0);
        assert_eq!(sampled(device, None, 1.0), all);
        let few = sampled(Device::Cpu, Some(20), 0.8);
        assert_eq!(sampled(device, Some(20), 0.8), few);
        assert_ne!(all, few);
    }
}

/// Images of clients enter between the steps of others.
#[test]
fn clients_get_the_texts_of_transformers() {
    let Some((device, _shared)) = device() else { return };
    let case = &cases()[0];
    let mut options = options();
    options.models = vec![ModelSource::new("trocr_base", case.path())];
    options.instances = vec![Session::builder().device(device)];
    options.limits.max_tokens = Some(LENGTH);
    options.max_batch = 2;
    let running = Running::new(options);
    thread::scope(|scope| {
        for (index, text) in case.texts.iter().enumerate() {
            let running = &running;
            scope.spawn(move || {
                let body = chat(&case.file(index), json!({"max_tokens": LENGTH})).to_string();
                let response = running.post(CHAT, &[], body.as_bytes());
                assert_eq!(response.status, 200, "{}", response.text());
                assert_eq!(response.json()["choices"][0]["message"]["content"], text.text);
            });
        }
    });
    assert_eq!(
        running.metric("hipvit_cache_pages_used{model=\"trocr_base\""),
        0.0
    );
}
