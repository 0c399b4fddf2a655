// The accelerator with its slave, its checker and a host at the register bus, cycle by cycle.
#pragma once
#include <memory>

#include "Vtop.h"
#include "slave.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

class Simulator {
    std::unique_ptr<VerilatedContext> context;
    std::unique_ptr<Vtop> top;
    Random random{1};  // of the host's pauses
    uint32_t pauses = 0;
#if VM_COVERAGE
    unsigned switched_on = 0;
#endif
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace;
#endif

    template <typename T>
    static void get(void* to, const T& port) {
        static_assert(sizeof(T) >= BEAT_BYTES, "width of the data bus");
        memcpy(to, &port, BEAT_BYTES);
    }

    void outputs() {
        pins.awvalid = top->m_axi_awvalid, pins.wvalid = top->m_axi_wvalid;
        pins.arvalid = top->m_axi_arvalid;
        pins.bready = top->m_axi_bready, pins.rready = top->m_axi_rready;
        pins.aw = {top->m_axi_awaddr, top->m_axi_awid,    top->m_axi_awlen,  top->m_axi_awsize,
                   top->m_axi_awburst, top->m_axi_awlock, top->m_axi_awcache, top->m_axi_awprot,
                   top->m_axi_awqos};
        pins.ar = {top->m_axi_araddr, top->m_axi_arid,    top->m_axi_arlen,  top->m_axi_arsize,
                   top->m_axi_arburst, top->m_axi_arlock, top->m_axi_arcache, top->m_axi_arprot,
                   top->m_axi_arqos};
        get(pins.w.data, top->m_axi_wdata);
        pins.w.strb = top->m_axi_wstrb, pins.w.last = top->m_axi_wlast;
        pins.l_awready = top->s_axil_awready, pins.l_wready = top->s_axil_wready;
        pins.l_bvalid = top->s_axil_bvalid, pins.l_bresp = top->s_axil_bresp;
        pins.l_arready = top->s_axil_arready, pins.l_rvalid = top->s_axil_rvalid;
        pins.l_rdata = top->s_axil_rdata, pins.l_rresp = top->s_axil_rresp;
        pins.irq = top->irq;
    }

    void inputs() {
        top->m_axi_awready = pins.awready, top->m_axi_wready = pins.wready;
        top->m_axi_arready = pins.arready;
        top->m_axi_bvalid = pins.bvalid, top->m_axi_bid = pins.bid, top->m_axi_bresp = pins.bresp;
        top->m_axi_rvalid = pins.rvalid, top->m_axi_rid = pins.r.id;
        top->m_axi_rresp = pins.r.resp, top->m_axi_rlast = pins.r.last;
        memcpy(&top->m_axi_rdata, pins.r.data, BEAT_BYTES);
        top->s_axil_awvalid = pins.l_awvalid, top->s_axil_wvalid = pins.l_wvalid;
        top->s_axil_bready = pins.l_bready, top->s_axil_arvalid = pins.l_arvalid;
        top->s_axil_rready = pins.l_rready;
    }

    void eval() {
        top->eval();
#if VM_TRACE
        if (trace) trace->dump(context->time());
        context->timeInc(5000);
#endif
    }

    unsigned pause() { return pauses ? random.below(pauses + 1) : 0; }

    // What the checker and the slave are told instead of the truth, to see that they notice.
    void sabotage() {
        if (!broken || cycle < broken_from) return;
        switch (broken) {
            case SABOTAGE_AWVALID: pins.awvalid &= !(cycle % 3 == 0); break;
            case SABOTAGE_WDATA: pins.w.data[0] ^= cycle & 1; break;
            case SABOTAGE_ARADDR: pins.ar.addr ^= (cycle & 1) * BEAT_BYTES; break;
            case SABOTAGE_WLAST: pins.w.last = !pins.w.last; break;
            case SABOTAGE_ARLEN: pins.ar.len = MAX_BEATS - 1; break;
            case SABOTAGE_AWSIZE: pins.aw.size--; break;
            case SABOTAGE_ARBURST: pins.ar.burst = 2; break;
            case SABOTAGE_WSTRB: pins.w.strb = 0; break;
            case SABOTAGE_AWADDR: pins.aw.addr += 4096; break;
            case SABOTAGE_ARID: pins.ar.id = READ_IDS; break;
            case SABOTAGE_RREADY: pins.rready = false; break;
            case SABOTAGE_BREADY: pins.bready = false; break;
            case SABOTAGE_BUSY: pins.l_rdata |= STATUS_BUSY; break;
            case SABOTAGE_RDATA: pins.r.data[0] ^= 1; break;
            case SABOTAGE_LITE: pins.l_bvalid = true; break;
            case SABOTAGE_IRQ: pins.irq = !pins.irq; break;
        }
    }

   public:
    Pins pins{};
    Memory memory;
    Checker checker;
    Slave slave{memory, checker};
    uint64_t cycle = 0;
    uint32_t broken = 0;
    uint64_t broken_from = 0;

    // A new accelerator, just switched on and reset.
    void power_on(const char* waves) {
        close();
        top.reset();
        context.reset(new VerilatedContext);
        top.reset(new Vtop(context.get()));
#if VM_TRACE
        if (waves) {
            context->traceEverOn(true);
            trace.reset(new VerilatedVcdC);
            top->trace(trace.get(), 99);
            trace->open(waves);
        }
#else
        (void)waves;
#endif
        pins = Pins{};
        cycle = 0;
        top->external = 1;
        slave.power_on();
        reset(4, true);
    }

    // Leaves the waveform, and what this accelerator has counted.
    void close() {
#if VM_COVERAGE
        std::string name = "coverage" + std::to_string(switched_on++) + ".dat";
        if (top) context->coveragep()->write(name);
#endif
#if VM_TRACE
        if (trace) trace->close();
        trace.reset();
#endif
    }

    void host(uint64_t seed, uint32_t longest_pause) {
        random = Random(seed ^ 0x5851F42D4C957F2Du);
        pauses = longest_pause;
    }

    void tick() {
        slave.drive(pins);
        if (broken == SABOTAGE_RDATA && cycle >= broken_from) sabotage();
        inputs();
        top->clk = 0;
        eval();
        outputs();
        if (broken != SABOTAGE_RDATA) sabotage();
        checker.observe(pins);
        slave.sample(pins);
        top->clk = 1;
        eval();
        cycle++;
    }

    void reset(unsigned cycles, bool also_slave) {
        top->rst = pins.rst = true;
        pins.l_awvalid = pins.l_wvalid = pins.l_bready = pins.l_arvalid = pins.l_rready = false;
        checker.reset();
        slave.drop_partial();
        if (also_slave) slave.power_on();
        for (unsigned i = 0; i < cycles; i++) tick();
        slave.drop_partial();
        top->rst = pins.rst = false;
        checker.reset();
        checker.running = false;
    }

    // A write, a read, or both at the same time; returns what was read.
    uint32_t access(bool write, uint32_t offset, uint32_t value, uint32_t strobe, bool read,
                    uint32_t read_offset) {
        unsigned aw = pause(), w = pause(), b = pause(), ar = pause(), r = pause();
        bool aw_left = write, w_left = write, b_left = write, ar_left = read, r_left = read;
        uint32_t result = 0;
        top->s_axil_awaddr = offset, top->s_axil_wdata = value, top->s_axil_wstrb = strobe;
        top->s_axil_araddr = read_offset;
        for (unsigned i = 0; b_left || r_left; i++) {
            if (i > 64 + 8 * pauses)
                throw Finding("lite-held", format("no answer to %s %#x", write ? "write" : "read",
                                                  write ? offset : read_offset));
            pins.l_awvalid = aw_left && i >= aw, pins.l_wvalid = w_left && i >= w;
            pins.l_arvalid = ar_left && i >= ar;
            pins.l_bready = write && i >= b, pins.l_rready = read && i >= r;
            tick();
            if (pins.l_awvalid && pins.l_awready) aw_left = false;
            if (pins.l_wvalid && pins.l_wready) w_left = false;
            if (pins.l_arvalid && pins.l_arready) ar_left = false;
            if (pins.l_bvalid && pins.l_bready) {
                b_left = false;
                answered(offset, pins.l_bresp, true);
            }
            if (pins.l_rvalid && pins.l_rready) {
                r_left = false;
                result = pins.l_rdata;
                answered(read_offset, pins.l_rresp, false);
            }
        }
        pins.l_bready = pins.l_rready = false;
        return result;
    }

    uint32_t read(uint32_t offset) { return access(false, 0, 0, 0, true, offset); }
    void write(uint32_t offset, uint32_t value) { access(true, offset, value, 15, false, 0); }

    // The response that the register's description asks for.
    void answered(uint32_t offset, unsigned resp, bool write) {
        unsigned kind = ACCESS[offset / 4];
        bool right = kind == UNDEFINED              ? resp == 3
                     : !write                       ? resp == 0
                     : kind == READ_ONLY            ? resp == 2
                     : kind == LOCKED               ? resp == 0 || resp == 2
                                                    : resp == 0;
        if (!right)
            throw Finding("lite-response", format("%s of register %#x is answered with %u",
                                                  write ? "write" : "read", offset, resp));
    }
};
