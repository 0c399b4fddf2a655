// The accelerator with a memory, for simulation.
//
// With `external` low the AXI4 master works on the fast memory inside, which is filled and read
// through its back door; with `external` high it is at the ports m_axi_*, for a bus model outside.
//
// - cycle counts since the reset, memory_stalls the cycles in which the main array had a command, but
//   waited for weights or the buffer. written[word] has both, the count in its upper half, of when a
//   memory word was written last; dumped to LOG_FILE together with the memory.
// - both_cores counts the cycles since the last write to CONTROL in which the arrays of both cores
//   took a vector; zero without ADAGP_TWO_CORES.
// - With `keep` high `rst` does not reset the bus side of the memory, which still answers what it was
//   asked for. owes_answers is high while it will answer something, wants_data while it has taken a
//   write address and not all data for it.
module adagp_sim #(
    parameter DATA_WIDTH = 64,
    parameter ADDRESS_WIDTH = 32,
    parameter ID_WIDTH = 2,
    parameter SIZE_BYTES = 1 << 20,
    parameter LOG_FILE = "written.hex"
) (
    input clk,
    input rst,
    input external,
    input keep,
    output owes_answers,
    output wants_data,
    output irq,
    output reg [31:0] cycle,
    output reg [31:0] both_cores,

    input [11:0] s_axil_awaddr,
    input [2:0] s_axil_awprot,
    input s_axil_awvalid,
    input [31:0] s_axil_wdata,
    input [3:0] s_axil_wstrb,
    input s_axil_wvalid,
    input s_axil_bready,
    input [11:0] s_axil_araddr,
    input [2:0] s_axil_arprot,
    input s_axil_arvalid,
    input s_axil_rready,
    output s_axil_awready,
    output s_axil_wready,
    output [1:0] s_axil_bresp,
    output s_axil_bvalid,
    output s_axil_arready,
    output [31:0] s_axil_rdata,
    output [1:0] s_axil_rresp,
    output s_axil_rvalid,

    output [ID_WIDTH-1:0] m_axi_awid,
    output [ADDRESS_WIDTH-1:0] m_axi_awaddr,
    output [7:0] m_axi_awlen,
    output [2:0] m_axi_awsize,
    output [1:0] m_axi_awburst,
    output m_axi_awlock,
    output [3:0] m_axi_awcache,
    output [2:0] m_axi_awprot,
    output [3:0] m_axi_awqos,
    output m_axi_awvalid,
    output [DATA_WIDTH-1:0] m_axi_wdata,
    output [DATA_WIDTH/8-1:0] m_axi_wstrb,
    output m_axi_wlast,
    output m_axi_wvalid,
    output m_axi_bready,
    output [ID_WIDTH-1:0] m_axi_arid,
    output [ADDRESS_WIDTH-1:0] m_axi_araddr,
    output [7:0] m_axi_arlen,
    output [2:0] m_axi_arsize,
    output [1:0] m_axi_arburst,
    output m_axi_arlock,
    output [3:0] m_axi_arcache,
    output [2:0] m_axi_arprot,
    output [3:0] m_axi_arqos,
    output m_axi_arvalid,
    output m_axi_rready,
    input m_axi_awready,
    input m_axi_wready,
    input [ID_WIDTH-1:0] m_axi_bid,
    input [1:0] m_axi_bresp,
    input m_axi_bvalid,
    input m_axi_arready,
    input [ID_WIDTH-1:0] m_axi_rid,
    input [DATA_WIDTH-1:0] m_axi_rdata,
    input [1:0] m_axi_rresp,
    input m_axi_rlast,
    input m_axi_rvalid,

    // Back door, stalls and errors of the memory: see axi_ram.v.
    input [7:0] stall_aw,
    input [7:0] stall_w,
    input [7:0] stall_b,
    input [7:0] stall_ar,
    input [7:0] stall_r,
    input [15:0] read_latency,
    input [15:0] write_latency,
    input [31:0] seed,
    input [ADDRESS_WIDTH-1:0] error_base,
    input [ADDRESS_WIDTH-1:0] error_size,
    input [1:0] error_resp,
    input load,
    input [31:0] load_first,
    input [31:0] load_count,
    output load_done,
    input dump,
    input [31:0] dump_first,
    input [31:0] dump_last,
    output dump_done,
    input access,
    input access_write,
    input [31:0] access_word,
    input [DATA_WIDTH-1:0] access_data,
    output [DATA_WIDTH-1:0] access_result,
    output access_done,
    output [31:0] read_beats,
    output [31:0] write_beats,
    output [31:0] protocol_errors
);
    wire ram_awready;
    wire ram_wready;
    wire [ID_WIDTH-1:0] ram_bid;
    wire [1:0] ram_bresp;
    wire ram_bvalid;
    wire ram_arready;
    wire [ID_WIDTH-1:0] ram_rid;
    wire [DATA_WIDTH-1:0] ram_rdata;
    wire [1:0] ram_rresp;
    wire ram_rlast;
    wire ram_rvalid;

    `ADAGP_TOP accelerator (
        .clk(clk), .rst(rst), .irq(irq),
        .s_axil_awaddr(s_axil_awaddr),
        .s_axil_awprot(s_axil_awprot),
        .s_axil_awvalid(s_axil_awvalid),
        .s_axil_wdata(s_axil_wdata),
        .s_axil_wstrb(s_axil_wstrb),
        .s_axil_wvalid(s_axil_wvalid),
        .s_axil_bready(s_axil_bready),
        .s_axil_araddr(s_axil_araddr),
        .s_axil_arprot(s_axil_arprot),
        .s_axil_arvalid(s_axil_arvalid),
        .s_axil_rready(s_axil_rready),
        .s_axil_awready(s_axil_awready),
        .s_axil_wready(s_axil_wready),
        .s_axil_bresp(s_axil_bresp),
        .s_axil_bvalid(s_axil_bvalid),
        .s_axil_arready(s_axil_arready),
        .s_axil_rdata(s_axil_rdata),
        .s_axil_rresp(s_axil_rresp),
        .s_axil_rvalid(s_axil_rvalid),
        .m_axi_awid(m_axi_awid),
        .m_axi_awaddr(m_axi_awaddr),
        .m_axi_awlen(m_axi_awlen),
        .m_axi_awsize(m_axi_awsize),
        .m_axi_awburst(m_axi_awburst),
        .m_axi_awlock(m_axi_awlock),
        .m_axi_awcache(m_axi_awcache),
        .m_axi_awprot(m_axi_awprot),
        .m_axi_awqos(m_axi_awqos),
        .m_axi_awvalid(m_axi_awvalid),
        .m_axi_wdata(m_axi_wdata),
        .m_axi_wstrb(m_axi_wstrb),
        .m_axi_wlast(m_axi_wlast),
        .m_axi_wvalid(m_axi_wvalid),
        .m_axi_bready(m_axi_bready),
        .m_axi_arid(m_axi_arid),
        .m_axi_araddr(m_axi_araddr),
        .m_axi_arlen(m_axi_arlen),
        .m_axi_arsize(m_axi_arsize),
        .m_axi_arburst(m_axi_arburst),
        .m_axi_arlock(m_axi_arlock),
        .m_axi_arcache(m_axi_arcache),
        .m_axi_arprot(m_axi_arprot),
        .m_axi_arqos(m_axi_arqos),
        .m_axi_arvalid(m_axi_arvalid),
        .m_axi_rready(m_axi_rready),
        .m_axi_awready(external ? m_axi_awready : ram_awready),
        .m_axi_wready(external ? m_axi_wready : ram_wready),
        .m_axi_bid(external ? m_axi_bid : ram_bid),
        .m_axi_bresp(external ? m_axi_bresp : ram_bresp),
        .m_axi_bvalid(external ? m_axi_bvalid : ram_bvalid),
        .m_axi_arready(external ? m_axi_arready : ram_arready),
        .m_axi_rid(external ? m_axi_rid : ram_rid),
        .m_axi_rdata(external ? m_axi_rdata : ram_rdata),
        .m_axi_rresp(external ? m_axi_rresp : ram_rresp),
        .m_axi_rlast(external ? m_axi_rlast : ram_rlast),
        .m_axi_rvalid(external ? m_axi_rvalid : ram_rvalid)
    );

    axi_ram #(
        .DATA_WIDTH(DATA_WIDTH),
        .ADDRESS_WIDTH(ADDRESS_WIDTH),
        .ID_WIDTH(ID_WIDTH),
        .SIZE_BYTES(SIZE_BYTES)
    ) ram (
        .clk(clk), .rst(rst && !keep),
        .awid(m_axi_awid),
        .awaddr(m_axi_awaddr),
        .awlen(m_axi_awlen),
        .awsize(m_axi_awsize),
        .awburst(m_axi_awburst),
        .awvalid(m_axi_awvalid && !external),
        .wdata(m_axi_wdata),
        .wstrb(m_axi_wstrb),
        .wlast(m_axi_wlast),
        .wvalid(m_axi_wvalid && !external),
        .bready(m_axi_bready),
        .arid(m_axi_arid),
        .araddr(m_axi_araddr),
        .arlen(m_axi_arlen),
        .arsize(m_axi_arsize),
        .arburst(m_axi_arburst),
        .arvalid(m_axi_arvalid && !external),
        .rready(m_axi_rready),
        .awready(ram_awready),
        .wready(ram_wready),
        .bid(ram_bid),
        .bresp(ram_bresp),
        .bvalid(ram_bvalid),
        .arready(ram_arready),
        .rid(ram_rid),
        .rdata(ram_rdata),
        .rresp(ram_rresp),
        .rlast(ram_rlast),
        .rvalid(ram_rvalid),
        .stall_aw(stall_aw), .stall_w(stall_w), .stall_b(stall_b),
        .stall_ar(stall_ar), .stall_r(stall_r),
        .read_latency(read_latency), .write_latency(write_latency), .seed(seed),
        .error_base(error_base), .error_size(error_size), .error_resp(error_resp),
        .load(load), .load_first(load_first), .load_count(load_count), .load_done(load_done),
        .dump(dump), .dump_first(dump_first), .dump_last(dump_last), .dump_done(dump_done),
        .access(access), .access_write(access_write), .access_word(access_word),
        .access_data(access_data), .access_result(access_result), .access_done(access_done),
        .read_beats(read_beats), .write_beats(write_beats), .protocol_errors(protocol_errors)
    );

    assign wants_data = ram.aw_in != ram.w_out;
    assign owes_answers = ram.ar_in != ram.ar_out || ram_rvalid || ram.aw_in != ram.b_out || ram_bvalid;

    localparam SHIFT = $clog2(DATA_WIDTH / 8);
    localparam WORDS = SIZE_BYTES / (DATA_WIDTH / 8);
    localparam INDEX = $clog2(WORDS);
    reg [63:0] written [0:WORDS-1];
    reg [31:0] memory_stalls;
    wire memory_stall = accelerator.core0.stall_weights || accelerator.core0.stall_buffer;
    always @(posedge clk) begin
        cycle <= rst ? 0 : cycle + 1;
        memory_stalls <= rst ? 0 : memory_stalls + {31'b0, memory_stall};
        if (ram.wvalid && ram.wready)
            written[ram.w_address[SHIFT +: INDEX]] <= {memory_stalls, cycle};
        if (dump != dump_done) $writememh(LOG_FILE, written, dump_first, dump_last);
    end

`ifdef ADAGP_TWO_CORES
    wire both = accelerator.core0.vectors && accelerator.core1.vectors;
`else
    wire both = 0;
`endif
    wire start = s_axil_awvalid && s_axil_awready && s_axil_awaddr == 12'h040;
    always @(posedge clk) both_cores <= rst || start ? 0 : both_cores + {31'b0, both};
endmodule
