# What the proxy of a network level passes on, with the answers of real name servers and TLS.
# A is the address of the permitted server, B of one that must never be reached.
import http.client
import socket
import ssl
import urllib.error
import urllib.request

PROXY = ("127.0.0.1", 3128)
A = os.environ["PERMITTED"]
TRUST = ssl.create_default_context(cadata=os.environ["CA"])


def get(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return "%d %s" % (answer.status, answer.read(300).decode())
    except urllib.error.HTTPError as e:
        return "%d %s" % (e.code, e.read(300).decode().strip())


def raw(request, size=65536):
    """Sends bytes to the proxy, and returns the first line and the last line of the answer."""
    with socket.create_connection(PROXY, 30) as s:
        s.sendall(request)
        text = b""
        try:
            while True:
                part = s.recv(size)
                if not part:
                    break
                text += part
                if b"\r\n\r\n" in text and b"Content-Length: 0" in text:
                    break
        except socket.timeout:
            text += b"timed out"
    lines = text.decode("latin-1").split("\r\n")
    return (lines[0] + " | " + lines[-1]).strip()


def tunnel(host, port=443):
    s = socket.create_connection(PROXY, 30)
    s.sendall(b"CONNECT %s:%d HTTP/1.1\r\nHost: x\r\n\r\n" % (host.encode(), port))
    head = b""
    while b"\r\n\r\n" not in head:
        part = s.recv(1)
        if not part:
            break
        head += part
    status = head.split(b"\r\n")[0].decode()
    if " 200 " not in status:
        body = s.recv(500).decode().strip()
        s.close()
        raise OSError(status.split(" ", 1)[1] + ": " + body)
    return s


def inside(host, name, context=None, port=443, wrap=lambda s: s):
    """The answer of a server through a tunnel, with a TLS server name of the client's choice."""
    try:
        s = wrap(tunnel(host, port))
    except OSError as e:
        return str(e)
    if context is None:
        context = ssl.create_default_context(cadata=os.environ["CA"])
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        with context.wrap_socket(s, server_hostname=name) as t:
            t.sendall(b"GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host.encode())
            text = b""
            while True:
                part = t.recv(4096)
                if not part:
                    return text.decode().split("\r\n\r\n", 1)[1]
                text += part
    except ssl.SSLCertVerificationError:
        return "the certificate is for another name"
    except ssl.SSLError as e:
        return e.reason or str(e)


#= 200 A good.example /
def a_permitted_name():
    return get("http://good.example/")


#= 200 A good.example /
def in_capital_letters_with_a_dot():
    return get("http://GOOD.Example./").replace("GOOD.Example.", "good.example")


#= 403 refused by the sandbox: B: the address is loopback, and not listed as an address
def one_address_of_two_is_forbidden():
    return get("http://both.example/")


#= 403 refused by the sandbox: 10.0.0.7: the address is private, and not listed as an address
def an_address_of_the_machines_network():
    return get("http://inside.example/")


#= 403 refused by the sandbox: 169.254.169.254: the address is that of a metadata service, and not listed as an address
def the_metadata_service():
    return get("http://meta.example/")


#= 403 refused by the sandbox: ::ffff:127.0.0.1: the address is loopback, and not listed as an address
def version_4_in_version_6():
    return get("http://mapped.example/")


#= 403 refused by the sandbox: 64:ff9b::a9fe:a9fe: the address is that of a metadata service, and not listed as an address
def the_metadata_service_by_a_translator():
    return get("http://nat64.example/")


#= 403 refused by the sandbox: ::1: the address is loopback, and not listed as an address
def loopback_of_version_6():
    return get("http://six.example/")


#= 403 refused by the sandbox: 0.0.0.0: the address is unspecified, and not listed as an address
def the_address_of_zeros():
    return get("http://zero.example/")


#= 200 A rebind.example / then 403 refused by the sandbox: B: the address is loopback, and not listed as an address
def a_name_that_changes_its_address():
    return get("http://rebind.example/") + " then " + get("http://rebind.example/")


#= A rebindtls.example / then 403 Forbidden: refused by the sandbox: B: the address is loopback, and not listed as an address
def a_name_that_changes_its_address_before_a_tunnel():
    return inside("rebindtls.example", "rebindtls.example") + " then " + inside("rebindtls.example", "rebindtls.example")


#= 200 A alias.example /
def another_name_of_a_permitted_one():
    return get("http://alias.example/")


#= 403 refused by the sandbox: B: the address is loopback, and not listed as an address
def another_name_of_a_forbidden_one():
    return get("http://trap.example/")


#= /502 the sandbox could not pass the request on: loop.example: .*/
def a_circle_of_names():
    return get("http://loop.example/")


#= 502 the sandbox could not pass the request on: none.example: no such host
def a_name_that_is_not_there():
    return get("http://none.example/")


#= 502 the sandbox could not pass the request on: empty.example: no such host
def a_name_without_an_address():
    return get("http://empty.example/")


#= /502 the sandbox could not pass the request on: broken.example: its addresses could not be found out: .*server misbehaving/
def a_broken_name_server():
    return get("http://broken.example/")


#= /502 the sandbox could not pass the request on: silent.example: its addresses could not be found out: .*i.o timeout/
def a_silent_name_server():
    return get("http://silent.example/")


#= /502 the sandbox could not pass the request on: garbage.example: its addresses could not be found out: .*/
def a_name_server_that_sends_garbage():
    return get("http://garbage.example/")


#= 502 the sandbox could not pass the request on: many.example: has 100 addresses
def a_hundred_addresses():
    return get("http://many.example/")


#= 200 A tcp.example /
def an_answer_too_long_for_a_packet():
    return get("http://tcp.example/")


#= 200 A forged.example /
def a_forged_answer_comes_first():
    return get("http://forged.example/")


#= 403 refused by the sandbox: B: the address is loopback, and not listed as an address
def an_answer_about_another_name():
    return get("http://poisoned.example/")


# The search list of the machine would make short.example of it.
#= 502 the sandbox could not pass the request on: short: no such host
def a_name_without_a_domain():
    return get("http://short/")


#= 403 refused by the sandbox: no permitted host matches
def a_name_that_is_not_listed():
    return get("http://unlisted.example/")


#= 403 refused by the sandbox: denied by denied.example
def a_name_that_is_denied():
    return get("http://denied.example/")


#= 403 refused by the sandbox: port 81 is not one of good.example
def another_port():
    return get("http://good.example:81/")


#= /(HTTP.1.1 403 Forbidden . refused by the sandbox: [^|]*;){4}/
def addresses_in_odd_forms():
    return "".join(raw(b"GET http://%s/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % host) + ";"
                   for host in (b"127.1", b"0x7f000001", b"2130706433", b"[::ffff:7f00:1]"))


#= HTTP/1.1 403 Forbidden | refused by the sandbox: the URL holds a user name
def a_permitted_name_as_the_user():
    return raw(b"GET http://good.example@unlisted.example/ HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n")


#= HTTP/1.1 200 OK | A good.example /
def another_name_in_the_header():
    return raw(b"GET http://good.example/ HTTP/1.1\r\nHost: unlisted.example\r\nConnection: close\r\n\r\n")


#= HTTP/1.1 403 Forbidden | refused by the sandbox: a request must name its whole URL: this is a proxy
def a_request_to_the_proxy_itself():
    return raw(b"GET / HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n")


#= 403 refused by the sandbox: no permitted host matches
def a_redirection_to_a_forbidden_name():
    return get("http://good.example/redirect")


#= HTTP/1.1 403 Forbidden | refused by the sandbox: the host changed the protocol
def another_protocol():
    return raw(b"GET http://good.example/upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n")


#= 200 A good.example / then 403 Forbidden
def two_requests_in_one_connection():
    c = http.client.HTTPConnection(*PROXY, timeout=30)
    c.request("GET", "http://good.example/")
    first = c.getresponse()
    text = "%d %s" % (first.status, first.read().decode())
    c.request("GET", "http://unlisted.example/")
    second = c.getresponse()
    return "%s then %d %s" % (text, second.status, second.reason)


#= 1 requests of good.example
def two_lengths_of_one_body():
    before = int(get("http://good.example/count").split()[-1])
    raw(b"POST http://good.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"0\r\n\r\nGET http://unlisted.example/ HTTP/1.1\r\nHost: unlisted.example\r\n\r\n")
    return "%d requests of good.example" % (int(get("http://good.example/count").split()[-1]) - before)


#= HTTP/1.1 403 Forbidden | refused by the sandbox: a request must name its whole URL: this is a proxy
def the_first_line_of_version_2():
    return raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


#= A good.example /
def a_tunnel_with_its_own_name():
    return inside("good.example", "good.example", TRUST)


#= A good.example /
def a_tunnel_with_its_name_in_capital_letters():
    return inside("good.example", "GOOD.example")


#= TLSV1_UNRECOGNIZED_NAME
def a_tunnel_with_a_name_not_listed():
    return inside("good.example", "unlisted.example")


# Two permitted names may be one server, which then answers for the second one.
#= TLSV1_UNRECOGNIZED_NAME
def a_tunnel_with_another_permitted_name():
    return inside("good.example", "alias.example")


#= TLSV1_UNRECOGNIZED_NAME
def a_tunnel_without_a_name():
    return inside("good.example", None)


#= A A /
def a_tunnel_to_an_address():
    return inside(A, None)


#= TLSV1_UNRECOGNIZED_NAME
def a_tunnel_to_an_address_with_a_name():
    return inside(A, "good.example")


#= the certificate is for another name
def a_server_with_the_certificate_of_another():
    return inside("wrongcert.example", "wrongcert.example", TRUST)


def hello(name):
    """The first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = TRUST.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def answer_to(first, host="good.example", port=443):
    try:
        with tunnel(host, port) as s:
            s.sendall(first)
            s.settimeout(30)
            return s.recv(7).hex() or "closed"
    except ConnectionResetError:
        return "closed"
    except OSError as e:
        return str(e)


ALERT = "15030100020270"


# Encrypted Client Hello carries the real name where nobody sees it.
#= 15030100020270
def a_tunnel_with_an_encrypted_name():
    text = bytearray(hello("good.example"))
    more = struct.pack(">HH", 0xfe0d, 8) + bytes(8)
    at = 9 + 2 + 32
    at += 1 + text[at]
    at += 2 + struct.unpack_from(">H", text, at)[0]
    at += 1 + text[at]
    struct.pack_into(">H", text, at, struct.unpack_from(">H", text, at)[0] + len(more))
    struct.pack_into(">H", text, 3, struct.unpack_from(">H", text, 3)[0] + len(more))
    text[6:9] = (int.from_bytes(text[6:9], "big") + len(more)).to_bytes(3, "big")
    return answer_to(bytes(text) + more)


#= 15030100020270
def a_tunnel_without_encryption():
    return answer_to(b"GET / HTTP/1.1\r\nHost: unlisted.example\r\n\r\n")


#= 15030100020270
def a_tunnel_to_port_80():
    return answer_to(b"GET / HTTP/1.1\r\nHost: unlisted.example\r\n\r\n", port=80)


#= 15030100020270
def a_tunnel_of_another_protocol():
    return answer_to(b"SSH-2.0-probe\r\n")


#= 15030100020270
def a_tunnel_in_a_tunnel():
    return answer_to(b"CONNECT unlisted.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")


class Slow:
    """A socket that sends one byte at a time."""

    def __new__(cls, s):
        a, b = socket.socketpair()
        import threading
        def up():
            try:
                while True:
                    data = b.recv(4096)
                    if not data:
                        break
                    for n in range(len(data)):
                        s.sendall(data[n:n + 1])
            except OSError:
                pass
        def down():
            try:
                while True:
                    data = s.recv(4096)
                    if not data:
                        break
                    b.sendall(data)
                b.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        threading.Thread(target=up, daemon=True).start()
        threading.Thread(target=down, daemon=True).start()
        return a


#= A good.example /
def a_first_message_byte_by_byte():
    return inside("good.example", "good.example", wrap=Slow)


#= TLSV1_UNRECOGNIZED_NAME
def a_forbidden_name_byte_by_byte():
    return inside("good.example", "unlisted.example", wrap=Slow)


#= 403 Forbidden: refused by the sandbox: port 22 is not one of good.example
def a_tunnel_to_another_port():
    return answer_to(b"", port=22)


#= 403 Forbidden: refused by the sandbox: no permitted host matches
def a_tunnel_to_a_name_not_listed():
    return answer_to(b"", "unlisted.example")


#= 403 Forbidden: refused by the sandbox: B: the address is loopback, and not listed as an address
def a_tunnel_to_a_forbidden_address_by_name():
    return answer_to(b"", "trap.example")


#= 403 Forbidden: refused by the sandbox: no permitted host matches
def a_tunnel_to_a_forbidden_address():
    return answer_to(b"", os.environ["FORBIDDEN"])


# A pattern with a port permits any protocol there.
#= b'hello from a\n'
def any_bytes_at_a_listed_port():
    with tunnel("raw.example", 2222) as s:
        return s.recv(100)


# The proxy is the only way: the addresses themselves cannot be reached.
#= ENETUNREACH
def the_servers_without_the_proxy():
    def direct(address):
        with socket.socket() as s:
            s.settimeout(5)
            s.connect(address)
    return all_refused({"documentation": (direct, ("192.0.2.1", 443)), "name server": (direct, ("8.8.8.8", 53))})


#= ECONNREFUSED
def loopback_of_the_machine():
    def direct(address):
        with socket.socket() as s:
            s.settimeout(5)
            s.connect(address)
    return all_refused({"a": (direct, (A, 80)), "b": (direct, (os.environ["FORBIDDEN"], 443)), "dns": (direct, (os.environ["NAMESERVER"], 53))})
