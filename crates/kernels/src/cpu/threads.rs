//! Work that threads share. Each way to hand it out is compiled once, whatever the work is.

use core::ops::Range;
use std::sync::Mutex;

use rayon::prelude::*;

/// Parts for each thread where there are more jobs: as many as even out threads that are held up.
const PARTS: usize = 4;

/// Has `work` done for each of the jobs, by all threads of the current pool.
pub fn share<J: Send>(jobs: impl IntoIterator<Item = J>, work: impl Fn(J) + Sync) {
    share_with(jobs, || (), |(), job| work(job));
}

/// As [`share`], each part of the jobs with something to work with that `start` makes.
pub fn share_with<J: Send, S>(
    jobs: impl IntoIterator<Item = J>,
    start: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, J) + Sync,
) {
    let jobs: Vec<_> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
    in_parts(jobs.len(), &|part| {
        let mut with = start();
        for job in &jobs[part] {
            let job = job.lock().expect("nothing panics with a job in hand").take();
            work(&mut with, job.expect("every job is in one part"));
        }
    });
}

/// Calls `work` with parts of `0..jobs`, in any order and each in one part.
fn in_parts(jobs: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    let threads = rayon::current_num_threads();
    let parts = jobs.min(if threads == 1 { 1 } else { PARTS * threads });
    let part = |part: usize| work(part * jobs / parts..(part + 1) * jobs / parts);
    match parts {
        0 => {}
        1 => part(0),
        _ => (0..parts).into_par_iter().with_max_len(1).for_each(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_once_on_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for jobs in [0, 1, 7, 8, 9, 100] {
                let mut done = vec![0; jobs];
                pool.install(|| share(done.iter_mut().enumerate(), |(i, done)| *done += i + 1));
                assert_eq!(done, (1..=jobs).collect::<Vec<_>>(), "{threads} threads");
            }
        }
    }
}
