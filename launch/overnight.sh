#!/usr/bin/env bash
# A night on one machine: start it at 22:00, read what it prints, and log out.
#
#   launch/overnight.sh experiment=agents_x_rounds protocol.agents=1,3,5 protocol.rounds=1,2,4 engine.model=Qwen/Qwen3-8B
#   STOP_AT=06:30 launch/overnight.sh task=gsm8k protocol.rounds=1,2,4 hydra/launcher=local    # a worker for each GPU
#
# All arguments go to `debate-local run -m`; `debate-local plan -m` with the same arguments says what they cost. What
# cannot run is told at once. Then the sweep goes on in a session of its own, whatever happens to this terminal. At
# STOP_AT it begins no more items: all cells hold the same ones, and `resume` adds the others.
#
#   STOP_AT         local time or date, 07:00 by default; empty: run to the end
#   DEBATE_LOCAL    the program, debate-local by default, such as .venv/bin/debate-local
set -euo pipefail

debate_local=${DEBATE_LOCAL:-debate-local}
stop_at=${STOP_AT-07:00}
if (($# == 0)); then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
  exit 2
fi
arguments=(${stop_at:+"stop.at='$stop_at'"} "$@")

# The check: composes all cells, and writes the sweep's folder. It has a launcher of its own.
composed=()
for argument in "${arguments[@]}"; do
  [[ $argument == hydra[./]* ]] || composed+=("$argument")
  # One among the arguments comes after ours, so it holds.
  [[ $argument != stop.at=* ]] || stop_at=$(tr -d "'\"" <<<"${argument#stop.at=}")
done
told=$("$debate_local" run -m hydra/launcher=freeze "${composed[@]}")
sweep=$(sed -n 's/^frozen: //p' <<<"$told")

log=$sweep/logs/overnight-$(date +%Y%m%d-%H%M%S).log
detached=(nohup)
if command -v setsid >/dev/null; then
  detached=(setsid nohup)
fi
"${detached[@]}" "$debate_local" run -m "${arguments[@]}" </dev/null >"$log" 2>&1 &
process=$!
sleep 3
if ! kill -0 "$process" 2>/dev/null; then
  # Done already, or it failed after all.
  code=0
  wait "$process" || code=$?
  cat "$log"
  exit "$code"
fi
printf '%-9s%s\n' \
  started: "process $process, until ${stop_at:-all is done}" \
  log: "$log" \
  watch: "$debate_local status ${sweep@Q} --watch" \
  stop: "kill $process    (what was answered is kept)" \
  morning: "$debate_local status ${sweep@Q} --log && $debate_local show ${sweep@Q}" \
  resume: "$debate_local resume ${sweep@Q}"
