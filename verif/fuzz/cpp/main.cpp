// Runs fuzz cases on the accelerator, one after the other: cases come in on the standard input, a
// line for each goes out. verif/fuzz/harness.py is the other side; tables.h is written there.
//
// A case is a run of a program that may be anything, on a slave that may be anything; it must end,
// and behind it a good program must store exactly what it must, without a reset in between.
#include <cstdio>
#include <cstdlib>

#include "simulator.h"

struct Pair {
    uint32_t offset, value;
};

// What the host does in the middle of a run.
struct Action {
    uint32_t cycle, offset, value, strobe, read_offset;
};

struct Case {
    CaseFields f;
    SlaveFields slave;
    std::vector<Pair> registers;
    std::vector<Action> script;
    std::vector<uint8_t> commands;
};

struct Good {
    GoodFields f;
    std::vector<Pair> registers;
    std::vector<uint8_t> image, after;
};

struct End {
    uint32_t status, code, unit, commands;
    uint64_t address, cycles;
    bool reset;
};

class Input {
    FILE* file;

   public:
    explicit Input(FILE* file) : file(file) {}
    bool raw(void* to, size_t bytes) { return fread(to, 1, bytes, file) == bytes; }
    template <typename T>
    bool one(T& to) { return raw(&to, sizeof to); }
    template <typename T>
    bool many(std::vector<T>& to) {
        uint64_t count;
        if (!one(count)) return false;
        to.resize(count);
        return !count || raw(to.data(), count * sizeof(T));
    }
};

static bool read_case(Input& in, Case& c) {
    return in.one(c.f) && in.one(c.slave) && in.many(c.registers) && in.many(c.script) &&
           in.many(c.commands);
}

class Fuzz {
    Simulator sim;
    std::vector<Good> goods;
    const Case* c = nullptr;
    uint64_t revive_at = ~uint64_t(0);

    // Cycles that what is outstanding may take when nothing new is requested.
    uint64_t drain_bound() const {
        const SlaveFields& s = c->slave;
        uint64_t slowest = 256;
        for (uint64_t share : {s.ready_ar, s.ready_aw, s.ready_w, 256 - s.gap_r, 256 - s.gap_b})
            if (share < slowest) slowest = share;
        uint64_t beats = 0;
        for (unsigned limit : READ_LIMIT) beats += (limit + 1) * MAX_BEATS;
        for (unsigned limit : WRITE_LIMIT) beats += (limit + 1) * MAX_BEATS;
        return 1000 + 4 * (s.read_high + s.write_high) + 4 * beats * 256 / (slowest ? slowest : 1);
    }

    void tick() {
        if (sim.cycle >= revive_at) sim.slave.dead = false, revive_at = ~uint64_t(0);
        sim.tick();
    }

    // Until nothing is outstanding on the bus.
    void quiesce(const char* kind) {
        uint64_t limit = sim.cycle + drain_bound() + (sim.slave.dead ? revive_at - sim.cycle : 0);
        for (unsigned idle = 0; idle < 4;) {
            tick();
            bool quiet = !sim.slave.outstanding() && !sim.pins.awvalid && !sim.pins.wvalid &&
                         !sim.pins.arvalid;
            idle = quiet ? idle + 1 : 0;
            if (sim.cycle > limit)
                throw Finding(kind, format("%u things are outstanding on the bus and stay so",
                                           sim.slave.outstanding()));
        }
    }

    void program_registers(uint64_t base, uint64_t size, uint64_t program, uint64_t program_size,
                           const std::vector<Pair>& registers) {
        for (auto& pair : registers) sim.write(pair.offset, pair.value);
        // A checker whose window is a beat too short must notice good programs.
        bool narrow = c->f.sabotage == SABOTAGE_WINDOW && size >= BEAT_BYTES;
        sim.checker.window = {base, size - (narrow ? BEAT_BYTES : 0)};
        sim.checker.program = {base + program, program_size};
    }

    // Start what the registers describe and wait for its end; `fuzzed` with all that the case has
    // in store for it.
    End run(bool fuzzed, uint64_t stop_at, uint64_t limit) {
        sim.checker.running = true;
        sim.write(REG_CONTROL, CONTROL_START);
        uint64_t begin = sim.cycle, deadline = ~uint64_t(0);
        bool stopped = false, asked = false;
        uint32_t status = 0;
        size_t next = 0;
        for (;;) {
            uint64_t now = sim.cycle - begin;
            if (sim.cycle >= revive_at) sim.slave.dead = false, revive_at = ~uint64_t(0);
            if (fuzzed) {
                if (c->f.dead_at && now >= c->f.dead_at && now < c->f.dead_at + c->f.dead_cycles &&
                    !sim.slave.dead) {
                    sim.slave.dead = true;
                    revive_at = begin + c->f.dead_at + c->f.dead_cycles;
                }
                if (c->f.reset_at && now >= c->f.reset_at) {
                    End end{};
                    end.reset = true, end.cycles = now;
                    sim.slave.dead = false;
                    sim.reset(c->f.reset_cycles, c->f.reset_slave);
                    return end;
                }
                while (next < c->script.size() && now >= c->script[next].cycle) {
                    const Action& a = c->script[next++];
                    asked |= a.strobe < 16 && a.offset == REG_CONTROL;
                    sim.access(a.strobe < 16, a.offset, a.value, a.strobe & 15,
                               a.read_offset < 4096, a.read_offset & 4095);
                }
            }
            if (!stopped && now >= stop_at) {
                stopped = true;
                if (CONTROL_STOP) sim.write(REG_CONTROL, CONTROL_STOP);
                // A bus that does not answer delays the end: until it does, or by the watchdog.
                deadline = sim.cycle + drain_bound() + 2 * c->f.watchdog;
                if (sim.slave.dead && !c->f.watchdog) deadline += revive_at - sim.cycle;
            }
            status = sim.read(REG_STATUS);
            if (!(status & STATUS_BUSY)) break;
            if (sim.cycle > deadline)
                throw Finding("no-end", format("CONTROL.STOP at cycle %llu, STATUS is still %#x "
                                               "at cycle %llu",
                                               (unsigned long long)stop_at, status,
                                               (unsigned long long)(sim.cycle - begin)));
            if (now > limit)
                throw Finding("good-hang", format("STATUS is %#x after %llu cycles", status,
                                                  (unsigned long long)now));
        }
        End end{};
        end.cycles = sim.cycle - begin;
        end.status = status;
        end.code = sim.read(REG_ERROR_CODE);
        end.unit = sim.read(REG_ERROR_UNIT);
        if (fuzzed) end.commands = sim.read(REG_COMMANDS_LO);
        if (end.code) {
            end.address = sim.read(REG_ERROR_ADDRESS_LO);
            end.address |= uint64_t(sim.read(REG_ERROR_ADDRESS_HI)) << 32;
        }
        if ((end.status & STATUS_DRAINING) && !stopped && !asked && !(fuzzed && c->f.watchdog))
            throw Finding("status", "DRAINING, but nobody has stopped the run");
        ended(end);
        return end;
    }

    // What must hold when BUSY has fallen.
    void ended(const End& end) {
        // A bus that does not answer is not waited for when it is said to be so.
        if (!(end.status & STATUS_DRAINING)) {
            sim.checker.ended(sim.pins);
            sim.checker.running = false;
        }
        uint32_t causes = sim.read(REG_INTERRUPT_STATUS);
        uint32_t enabled = sim.read(REG_INTERRUPT_ENABLE);
        if (sim.pins.irq != ((causes & enabled) != 0))
            throw Finding("irq", format("irq is %u, causes %#x of %#x", sim.pins.irq, causes,
                                        enabled));
        bool failed = end.status & STATUS_ERROR;
        if (!(end.status & STATUS_DONE) || failed != (end.code != 0) ||
            failed != (end.unit != 0) || bool(causes & CAUSE_ERROR) != failed)
            throw Finding("status", format("STATUS %#x, INTERRUPT_STATUS %#x, ERROR_CODE %u, "
                                           "ERROR_UNIT %u",
                                           end.status, causes, end.code, end.unit));
        if (end.code >= ERROR_CODES || end.unit >= UNITS || !UNIT_NAMED[end.unit])
            throw Finding("status", format("ERROR_CODE %u, ERROR_UNIT %u", end.code, end.unit));
        sim.write(REG_INTERRUPT_STATUS, causes);
        tick();
        tick();
        if (sim.pins.irq) throw Finding("irq", "irq stays high when the causes are cleared");
    }

    // Errors that nobody has caused, and caused ones that nobody has noticed.
    void plausible(const End& end, uint64_t reads, uint64_t fetches, uint64_t writes,
                   uint64_t strays) {
        bool read = end.code == READ_SLVERR || end.code == READ_DECERR;
        bool write = end.code == WRITE_SLVERR || end.code == WRITE_DECERR;
        if (((read && !reads && !fetches) || (write && !writes)) && !strays)
            throw Finding("false-error", format("ERROR_CODE %u, but the slave answered OKAY",
                                                end.code));
        if (read && end.unit == UNIT_FETCH && !strays) wanted(end);
        bool stopped = end.status & STATUS_STOPPED;
        if (!end.code && !stopped && !strays && (reads || writes))
            throw Finding("lost-error", format("%llu reads and %llu writes were answered with an "
                                               "error, and the run ended without one",
                                               (unsigned long long)reads,
                                               (unsigned long long)writes));
        if (end.code == WATCHDOG_CODE && !c->f.watchdog)
            throw Finding("false-error", "the watchdog ended a run, but it is off");
        if (end.code == UNEXPECTED_CODE && sim.checker.counting && !strays)
            throw Finding("false-error", "an unexpected response, but there was none");
    }

    // An error of the fetch must be that of the next command, not of one fetched ahead.
    void wanted(const End& end) {
        for (uint64_t i = 0; i < end.commands && i * COMMAND_BYTES < c->commands.size(); i++) {
            uint8_t opcode = c->commands[i * COMMAND_BYTES];
            if (opcode == OPCODE_BATCH || opcode == OPCODE_REPEAT) return;
            if (opcode >> PACKED_SHIFT == PACKED_CODE) return;
        }
        uint64_t address = c->f.base + c->f.program + uint64_t(end.commands) * COMMAND_BYTES;
        if (end.address != address)
            throw Finding("early-error", format("a read error at %#llx ends the run, but the next "
                                                "command is at %#llx",
                                                (unsigned long long)end.address,
                                                (unsigned long long)address));
    }

    End run_fuzzed() {
        sim.memory.reset(c->f.fill, c->f.fill_seed);
        if (c->f.program < c->f.size)
            sim.memory.load(c->f.base + c->f.program, c->commands.data(),
                            std::min(uint64_t(c->commands.size()), c->f.size - c->f.program));
        sim.slave.errors = true;
        // Who answers to nothing may be taken for who answers to a request that is just being made.
        sim.checker.counting = !c->slave.strays;
        uint64_t reads = sim.slave.read_errors, fetches = sim.slave.fetch_errors;
        uint64_t writes = sim.slave.write_errors, strays = sim.slave.strayed;
        program_registers(c->f.base, c->f.size, c->f.program, c->f.program_size, c->registers);
        End end = run(true, c->f.stop_at, ~uint64_t(0));
        if (!end.reset)
            plausible(end, sim.slave.read_errors - reads, sim.slave.fetch_errors - fetches,
                      sim.slave.write_errors - writes, sim.slave.strayed - strays);
        return end;
    }

    void settle(const End& end) {
        if (c->f.restart && !end.reset && sim.checker.counting) {
            sim.checker.former = sim.checker.window;
            return;
        }
        sim.slave.dead = sim.slave.errors = false;
        if (end.reset && !c->f.reset_wait) {
            // A run that meets what is left of the one before: it may fail, but it must end.
            sim.checker.counting = false;
            // Data that was accepted before the reset may still be written.
            sim.checker.former = sim.checker.window;
            load_good(goods[c->f.good], true);
            run(false, c->f.stop_at, ~uint64_t(0));
        }
        quiesce(end.reset ? "stray-held" : "owed");
        sim.checker.ended(sim.pins);
        sim.checker.running = false;
        sim.checker.counting = true;
        bool two = sim.checker.former.size;
        sim.checker.former = {};
        if (two) return;
        uint64_t outside = sim.memory.changed_outside(sim.checker.window.base,
                                                      sim.checker.window.size);
        if (outside != ~uint64_t(0))
            throw Finding("window-write", format("byte %#llx has changed",
                                                 (unsigned long long)outside));
    }

    void load_good(const Good& good, bool memory) {
        if (memory) sim.memory.reset(FILL_A5, 0);
        sim.memory.load(c->f.good_base, good.image.data(), good.image.size());
        std::vector<Pair> registers = good.registers;
        for (auto& pair : registers) {
            if (pair.offset == REG_MEM_BASE_LO) pair.value = uint32_t(c->f.good_base);
            if (pair.offset == REG_MEM_BASE_HI) pair.value = uint32_t(c->f.good_base >> 32);
        }
        program_registers(c->f.good_base, good.image.size(), good.f.program, good.f.program_size,
                          registers);
    }

    End run_good(const Good& good) {
        sim.slave.errors = false;
        uint64_t limit = 20000 + 100 * (c->slave.read_high + c->slave.write_high) + drain_bound();
        End end{};
        for (unsigned attempt = 0;; attempt++) {
            load_good(good, !sim.checker.former.size);
            if (sim.checker.former.size && sim.slave.dead) revive_at = sim.cycle + c->f.restart;
            end = run(false, ~uint64_t(0), limit);
            // Started while the bus owed answers to the run before, it may end by the watchdog.
            if (!(sim.checker.former.size && !attempt && end.code == WATCHDOG_CODE)) break;
            sim.slave.dead = false;
            quiesce("owed");
        }
        bool restarted = sim.checker.former.size;
        sim.checker.former = {};
        if (end.code || (end.status & STATUS_STOPPED))
            throw Finding("good-error", format("the good program ends with STATUS %#x, ERROR_CODE "
                                               "%u, ERROR_UNIT %u",
                                               end.status, end.code, end.unit));
        uint64_t place = sim.memory.differs(c->f.good_base, good.after.data(), good.after.size());
        if (place < good.after.size())
            throw Finding("good-data", format("byte %#llx of the good program's window is %#04x, "
                                              "not %#04x",
                                              (unsigned long long)place,
                                              *sim.memory.at(c->f.good_base + place),
                                              good.after[place]));
        if (restarted) return end;
        uint64_t outside = sim.memory.changed_outside(c->f.good_base, good.image.size());
        if (outside != ~uint64_t(0))
            throw Finding("window-write", format("byte %#llx has changed behind the good program",
                                                 (unsigned long long)outside));
        return end;
    }

   public:
    bool load_goods(const char* path) {
        FILE* file = fopen(path, "rb");
        if (!file) return false;
        Input in(file);
        Good good;
        while (in.one(good.f)) {
            if (!in.many(good.registers) || !in.many(good.image) || !in.many(good.after))
                return false;
            goods.push_back(good);
        }
        fclose(file);
        return true;
    }

    void execute(const Case& one, unsigned number, const char* waves) {
        c = &one;
        if (one.f.fresh) sim.power_on(waves);
        uint64_t begin = sim.cycle;
        revive_at = ~uint64_t(0);
        sim.broken = one.f.sabotage, sim.broken_from = sim.cycle + one.f.sabotage_from;
        sim.slave.configure(one.slave);
        sim.host(one.slave.seed, one.f.pauses);
        End end{}, good{};
        try {
            if (!one.commands.empty()) {
                end = run_fuzzed();
                settle(end);
            }
            good = run_good(goods[one.f.good]);
            printf("R %u %u %u %u %u %u %llu %llu %llu\n", number, end.status, end.code, end.unit,
                   end.commands, end.reset, (unsigned long long)end.cycles,
                   (unsigned long long)good.cycles, (unsigned long long)(sim.cycle - begin));
        } catch (const Finding& finding) {
            printf("F %u %s %llu %s\n", number, finding.kind.c_str(),
                   (unsigned long long)(sim.cycle - begin), finding.what());
            sim.power_on(nullptr);
        }
    }

    void close() { sim.close(); }
};

int main(int count, char** arguments) {
    const char* waves = count > 2 ? arguments[2] : nullptr;
    Fuzz fuzz;
    if (count < 2 || !fuzz.load_goods(arguments[1])) {
        fprintf(stderr, "usage: fuzz GOOD_PROGRAMS [WAVES]\n");
        return 2;
    }
    Input in(stdin);
    Case one;
    for (unsigned number = 0; read_case(in, one); number++) {
        fuzz.execute(one, number, waves);
        fflush(stdout);
    }
    fuzz.close();
    return 0;
}
