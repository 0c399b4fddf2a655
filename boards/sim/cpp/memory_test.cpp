// Traffic on the memory controller, chip pins and all: one line with figures, one for each thing that is wrong.
//
// arguments: kind (random, stream, stalls), number of requests, seed, longest burst in beats
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>

#include "chip.h"
#include "Vtop.h"
#include "verilated.h"

static constexpr unsigned BEAT = DATA_WIDTH / 8, MOST = 8, IDS = 4;
static constexpr uint64_t PATIENCE = 20000;

struct Burst {
    uint64_t address;
    unsigned beats, id, done = 0;
    std::vector<uint8_t> data, strobes;
    uint64_t end() const { return address + beats * BEAT; }
};

template <typename T>
static void put_beat(T& port, const uint8_t* from) { memcpy(&port, from, BEAT); }
template <typename T>
static void get_beat(const T& port, uint8_t* to) { memcpy(to, &port, BEAT); }

class Test {
    VerilatedContext context;
    Vtop top{&context};
    Chip chip;
    std::vector<uint8_t> expected;
    std::mt19937_64 random;
    std::deque<Burst> reads, writes, to_read, to_write;
    bool streams, stalls;
    unsigned longest;
    uint64_t next_stream = 0, cycle = 0, last_move = 0, bytes = 0, wrong = 0, requests = 0;
    uint64_t sdram_cycles = 0, measured_from = 0;
    std::string first_wrong;

    uint64_t below(uint64_t n) { return random() % n; }
    bool often() { return !stalls || !below(3); }

    void report_wrong(const std::string& text) {
        if (!wrong++) first_wrong = text;
    }

    // Half a cycle of the SDRAM's clock; the chip has its edge in the second half.
    void half(bool high, bool sync_edge) {
        top.clk_sdram = high;
        if (RATIO == 2 ? sync_edge : true) top.clk = RATIO == 2 ? sync_high : high;
        top.eval();
        if (high) return;
        ChipPins pins;
        pins.cke = top.sdram_cke, pins.cs_n = top.sdram_cs_n;
        pins.ras_n = top.sdram_ras_n, pins.cas_n = top.sdram_cas_n, pins.we_n = top.sdram_we_n;
        pins.ba = top.sdram_ba, pins.a = top.sdram_a, pins.dqm = top.sdram_dqm;
        pins.dq = top.sdram_dq__out, pins.dq_driven = top.sdram_dq__en != 0;
        if (top.sdram_dq__en != 0 && top.sdram_dq__en != 0xffff)
            report_wrong("some of the data pins are driven, some are not");
        chip.edge(pins);
        top.sdram_dq = chip.dq;
        sdram_cycles++;
    }
    bool sync_high = false;

    // One cycle of the port's clock, from one rising edge to just before the next.
    void tick() {
        if (RATIO == 2) {
            sync_high = true;
            half(true, true), half(false, false);
            sync_high = false;
            half(true, true), half(false, false);
        } else {
            half(true, true), half(false, true);
        }
        cycle++;
    }

    template <typename Q>
    static bool overlaps(const Q& queue, const Burst& b) {
        for (auto& other : queue)
            if (b.address < other.end() && other.address < b.end()) return true;
        return false;
    }

    bool make(Burst& b, bool is_write) {
        b.beats = streams ? longest : 1 + below(longest);
        b.id = below(IDS);
        uint64_t size = stalls ? 1 << 16 : chip.size();
        b.address = streams ? next_stream : below(size / BEAT) * BEAT;
        if ((b.address & 4095) + b.beats * BEAT > 4096) b.beats = (4096 - (b.address & 4095)) / BEAT;
        if (overlaps(writes, b) || overlaps(to_write, b)) return false;
        if (is_write && (overlaps(reads, b) || overlaps(to_read, b))) return false;
        if (streams) next_stream = b.end() % chip.size();
        if (!is_write) return true;
        b.data.resize(b.beats * BEAT);
        b.strobes.resize(b.beats * BEAT);
        bool whole = below(4);
        for (auto& byte : b.data) byte = random();
        for (auto& strobe : b.strobes) strobe = whole || below(2);
        for (unsigned i = 0; i < b.data.size(); i++)
            if (b.strobes[i]) expected[b.address + i] = b.data[i];
        return true;
    }

    void add(uint64_t number) {
        // A stream is read, then written, in long stretches.
        bool is_write = streams ? requests / 256 % 2 : below(2);
        auto& waiting = is_write ? to_write : to_read;
        auto& out = is_write ? writes : reads;
        if (requests == number || waiting.size() + out.size() >= MOST) return;
        Burst b;
        if (!make(b, is_write)) return;
        waiting.push_back(b);
        requests++;
    }

   public:
    Test(const std::string& kind, uint64_t seed, unsigned longest)
        : expected(chip.bytes(), chip.bytes() + chip.size()), random(seed),
          streams(kind == "stream"), stalls(kind == "stalls"), longest(longest) {}

    void run(uint64_t number) {
        top.rst = 1;
        for (int i = 0; i < 4; i++) tick();
        top.rst = 0;
        unsigned sent_beats = 0;
        std::deque<Burst> data_to_send;
        while (cycle < PATIENCE + 400000 && !top.ready) tick();
        if (!top.ready) return report_wrong("the controller never becomes ready");
        measured_from = sdram_cycles;
        last_move = cycle;
        while (requests < number || !reads.empty() || !writes.empty() || !to_read.empty() ||
               !to_write.empty()) {
            add(number), add(number);
            // Requests; a signal that is up stays so until it is taken.
            if (!top.axi_arvalid && !to_read.empty() && often()) {
                Burst& b = to_read.front();
                top.axi_arvalid = 1, top.axi_araddr = b.address, top.axi_arlen = b.beats - 1, top.axi_arid = b.id;
            }
            if (!top.axi_awvalid && !to_write.empty() && often()) {
                Burst& b = to_write.front();
                top.axi_awvalid = 1, top.axi_awaddr = b.address, top.axi_awlen = b.beats - 1, top.axi_awid = b.id;
            }
            if (!top.axi_wvalid && !data_to_send.empty() && often()) {
                Burst& b = data_to_send.front();
                unsigned at = sent_beats * BEAT, strobe = 0;
                for (unsigned i = 0; i < BEAT; i++) strobe |= (b.strobes[at + i] ? 1u : 0) << i;
                top.axi_wvalid = 1, top.axi_wstrb = strobe, top.axi_wlast = sent_beats + 1 == b.beats;
                put_beat(top.axi_wdata, &b.data[at]);
            }
            top.axi_rready = often(), top.axi_bready = often();
            top.eval();
            bool ar = top.axi_arvalid && top.axi_arready, aw = top.axi_awvalid && top.axi_awready;
            bool w = top.axi_wvalid && top.axi_wready, r = top.axi_rvalid && top.axi_rready;
            bool b = top.axi_bvalid && top.axi_bready;
            if (r) read_beat();
            if (b) answered();
            tick();
            if (ar) top.axi_arvalid = 0, reads.push_back(to_read.front()), to_read.pop_front();
            if (aw) {
                top.axi_awvalid = 0;
                writes.push_back(to_write.front());
                data_to_send.push_back(to_write.front());
                to_write.pop_front();
            }
            if (w) {
                top.axi_wvalid = 0, bytes += BEAT;
                if (++sent_beats == data_to_send.front().beats) {
                    sent_beats = 0;
                    data_to_send.pop_front();
                }
            }
            if (ar || aw || w || r || b) last_move = cycle;
            if (cycle - last_move > PATIENCE) return report_wrong("nothing moves any more");
        }
        // The last answer comes before the data has left.
        for (int i = 0; i < 32; i++) tick();
        for (size_t i = 0; i < expected.size(); i++)
            if (expected[i] != chip.bytes()[i])
                report_wrong("byte " + std::to_string(i) + " of the chip is wrong at the end");
    }

    void read_beat() {
        bytes += BEAT;
        if (reads.empty()) return report_wrong("data that nobody has asked for");
        Burst& b = reads.front();
        uint8_t beat[BEAT];
        get_beat(top.axi_rdata, beat);
        uint64_t at = b.address + b.done * BEAT;
        if (memcmp(beat, &expected[at], BEAT))
            report_wrong("a read at " + std::to_string(at) + " in cycle " + std::to_string(cycle) +
                         " is wrong");
        b.done++;
        if (top.axi_rid != b.id || top.axi_rresp) report_wrong("a read has a wrong ID or response");
        if (bool(top.axi_rlast) != (b.done == b.beats)) report_wrong("RLAST is wrong");
        if (b.done == b.beats) reads.pop_front();
    }

    void answered() {
        if (writes.empty()) return report_wrong("an answer that nobody waits for");
        if (top.axi_bid != writes.front().id || top.axi_bresp) report_wrong("an answer has a wrong ID");
        writes.pop_front();
    }

    int finish() {
        uint64_t spent = sdram_cycles - measured_from;
        printf("bytes %llu cycles %llu violations %llu wrong %llu refreshes %u\n",
               (unsigned long long)bytes, (unsigned long long)spent,
               (unsigned long long)chip.violations, (unsigned long long)wrong,
               chip.refresh_count());
        if (chip.violations) printf("%s\n", chip.report().c_str());
        if (wrong) printf("%llu wrong; the first: %s\n", (unsigned long long)wrong, first_wrong.c_str());
        return 0;
    }
};

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    auto test = std::make_unique<Test>(argv[1], strtoull(argv[3], nullptr, 10), atoi(argv[4]));
    test->run(strtoull(argv[2], nullptr, 10));
    return test->finish();
}
